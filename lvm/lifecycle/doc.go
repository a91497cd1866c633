// Package lifecycle makes and removes logical volumes on a node as annotations on claims and volumes ask for it, so that a CSI driver needs no port
// open on its nodes. The [Agent] runs on each node; the [Provisioner] runs beside the API, in the CSI controller.
//
// # The protocol
//
//	claim   volume.lifecycle: creating   volume.spec: {"volumeGroup":"vg0","name":"pvc-1","size":1073741824,"tags":[],"striping":false}
//	        on the node in volume.kubernetes.io/selected-node, the logical volume is made        -> volume.lifecycle: created
//	volume  volume.lifecycle: deleting   volume.spec: vg0/pvc-1
//	        on the node of the required node affinity, the logical volume is removed             -> volume.lifecycle: deleted
//	both    when an attempt fails: volume.error: {"reason":"NoSpace","message":"...","uid":"..."}, taken away on success
//
// The keys begin with pv.csi.alibabacloud.com/ unless [Annotations] says otherwise. In the spec, "vg" is another spelling of "volumeGroup", and keys are read in
// any case. Whoever takes volume.error away while the request stands asks for another attempt at once; otherwise there is back-off. The
// provisioner also writes volume.uid, the UID of the object: a request on an object that was restored from a backup with the annotations of its former life does not
// count.
//
// # How the agent works
//
// Informers deliver events to [Agent.Claims] and [Agent.Volumes]. They end in two worlds of what is asked for on this node, and each change makes its object due in
// a queue (package engine). A pure function decides what to do about it; what is to be done is an operation of package executor, in a goroutine of its own,
// one at a time for a logical volume. Its end makes the object due again. When nothing changes, nothing runs. [Agent.ExplainClaim], [Agent.ExplainVolume] and
// [Agent.Explanations] call the same functions.
//
// # Guarantees
//
// For as long as the backend keeps the contract of [lvm.Backend], one agent runs per node, and names of nodes are unique:
//
//   - Everything that is read from annotations is taken for hostile. What is not valid by the rules of package lvm reaches no command; it is reported once, and not
//     tried again until it is changed.
//   - Nothing is done on the word of an event. The object is read from the API server right before a logical volume is made or removed, and again after it was
//     made: same UID, same node, same spec, still asked for.
//   - One request makes one logical volume, and removes one. "created" is written when the volume was seen to be there, with the tag of its owner; "deleted" when it was seen not to be there,
//     in a volume group that was. A group that is missing, exported or another host's is no removal.
//   - A logical volume that others have made is neither taken for a claim nor removed. A name that is taken is [ReasonExistsMismatch].
//   - A logical volume is removed by its UUID, after it was seen to be the volume's: by the owner's tag, which is the UID of the volume's claim. One without that tag,
//     such as the forerunner has made, must be the one that the volume itself names (see [DefaultSource]): its handle, and its group where it names one. A volume that is Bound is left
//     alone, and what is open, has snapshots or carries the tag "protected" is refused by the backend.
//   - All writes are JSON patches of the own keys, with tests of the UID and of what was read. What others write meanwhile survives; what changes the request stops the
//     write.
//   - The process may be killed between any two steps. What it leaves is finished, or removed, by the next; see the comments of the unexported create and remove, and
//     "What is on the logical volumes".
//   - A claim that goes while its volume is made leaves nothing behind: the volume is removed again, unless it is open or somebody may have been told of it.
//   - Of a volume whose affinity allows several nodes, only the node that has the logical volume says that it is gone.
//   - An agent with nothing to do calls neither lvm2 nor the API.
//
// # Limits
//
//   - Who may write the annotations of a claim may ask for a logical volume on any node. Restrict [AgentConfig].VolumeGroups, and who may patch claims.
//   - Volumes cannot be resized, cloned or mounted through this protocol.
//   - When a volume is bound to another claim than the one it was made for (reclaimed by hand), its logical volume has the first claim's tag, and is not removed:
//     change the tag sow.owner to the new claim's UID.
//   - When the process is killed in the moment between the tag "ready" and the word "created", and the claim goes before the next process starts, the logical
//     volume stays, since somebody may have been told of it. The search for orphans ([OrphanPolicy]) finds it.
//   - A volume without required node affinity is on no node, and is never removed. The provisioner refuses it with [ErrNoNode].
//   - A volume group that is not there when the agent starts is not recovered before the next start.
//   - A volume that somebody deletes while its logical volume is being wiped, and a wipe then fails, leaves the rest to the next start of an agent. A Finalizer prevents
//     that.
//   - Agents of two API servers must not work on one volume group: what one has just begun to make, the other, at its start, would take for left over, since it does
//     not know the claim. ([AgentConfig].VolumeGroups keeps them apart.)
//
// # What is on the logical volumes
//
//	sow.owner=UID           the claim's UID, from the first moment on
//	sow.claim=NAMESPACE/NAME  where to look whether it is still there
//	sow.lv=VG/LV            the name it was made under: a copy of the group, or a volume that somebody has renamed to keep it, is not cleaned away
//	sow.ready               set right before "created" is written: a volume without it was never announced
//
// # Ten thousand agents
//
// An agent watches claims and volumes: two watches for each node. Without a selector each event goes to every node, which costs an agent less than 10 µs, but the
// API server as many messages as there are nodes. With the label that the [Provisioner] sets together with the request (the key is [Annotations.NodeLabel]), an agent's
// informers can be narrowed to the objects of its own node:
//
//	selector := agentConfig.Annotations.NodeSelector(nodeName)
//	informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = selector }))
//
// The server then sends each event to one node, and memory and lists of an agent are those of its node. Objects that are not labelled are not seen: those that others
// annotate, and, with a Finalizer, those that nothing was asked of yet; label them when they are made. Field selectors are of no use here: the API knows none for
// annotations or affinities of these kinds.
//
// For one volume from creation to removal an agent makes six calls of the API: two reads and a patch for the creation, and the same for the removal.
//
// # Coming from the Alibaba Cloud CSI driver
//
// A cluster that has the annotations of that driver's pkg/local/generator can change its agents and its provisioner, in any order, without touching its objects. The names there, and what
// they are here:
//
//	DesiredStateOfWordPvc, DesiredStateOfPvc    cache.World of claims, in the Agent; no package variables
//	DesiredStateOfWordPv, DesiredStateOfPv      cache.World of volumes, in the Agent
//	ActualStateOfWordPvc, ActualStateOfWordPv   nothing: they were never filled. What is there, lvm2 is asked for, and its tags say whose it is
//	VolumeHandler                               NewAgent and Agent.Run
//	pvcInformer, pvInformer                     the caller's informers, with Agent.Claims and Agent.Volumes as handlers: no client-go here
//	pvcReconcile, pvReconcile                   the queue of package engine: no polling every two seconds
//	handlePvcAdd, handlePvDelete, ...           EventHandler: tombstones are understood, the end of one object is not that of its successor
//	isPvcExpected                               the node, and also the driver, the class and the UID
//	isPvExpected                                the node affinity evaluated as Kubernetes does, with all its terms and operators, not one form of it
//	processPvc, processPv                       read again, check whose it is, do, look, write; failures are written back
//	SetupSignalHandlerPVC, SetupSignalHandlerPV the context of Run: signals are the program's business
//	CreateVolumeWithAnnotations                 Provisioner.CreateVolumeWithAnnotations: a typed spec; waits as long as ctx, by watch; typed failure
//	DeleteVolumeWithAnnotations                 Provisioner.DeleteVolumeWithAnnotations
//	UpdatePvcWithAnnotations                    Provisioner.UpdatePVCWithAnnotations: a patch of the annotations, not an update of the whole claim
//	UpdatePvWithAnnotations                     Provisioner.UpdatePVWithAnnotations
//	types.GlobalConfigVar                       AgentConfig and ProvisionerConfig
//
// What behaves differently, and why:
//
//   - A claim that says "created" is never worked on again: there, it was for ever, and a volume that was lost was made anew, empty.
//   - "vg/" and a group that is not there are no removed volumes: there, they were answered with "deleted".
//   - A volume that exists under the name of a new one is not taken for it. A claim that the forerunner was killed over, between making its volume and saying so, is therefore
//     ExistsMismatch: remove the volume, or give it the tags above.
//   - A striped volume is not made linear without a word ([AgentConfig].AllowLinear), and tags are set, not ignored.
//   - Removal refuses volumes in use, with snapshots, or Bound; there, it was forced.
//   - Volumes are made and removed by a few operations at a time for each group, with back-off; there, an invalid spec was tried every two seconds.
//   - Claims that name another driver are left alone.
//   - A repeated request for what is done is answered without writing "creating" over "created".
package lifecycle
