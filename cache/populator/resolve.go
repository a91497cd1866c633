package populator

import (
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/stateofworld/stateofworld/cache"
)

// resolution is what the volumes of a pod come to.
type resolution struct {
	specs    []*cache.VolumeSpec // those that are attachable
	claims   []claimRef          // those that the pod names, found or not
	problems []Problem           // one for each volume that could not be resolved
}

// claimRef is a claim and the persistent volume that it names, if any.
type claimRef struct {
	name   types.NamespacedName
	volume string
}

// trouble is the reason why something could not be resolved.
type trouble struct {
	kind ProblemKind
	err  error
}

// resolve looks all volumes of the pod up. Volumes that are not attachable, or of a type
// that no plugin supports, are none of ours, and leave no trace.
func (p *Populator) resolve(pod *v1.Pod) resolution {
	var r resolution
	for i := range pod.Spec.Volumes {
		volume := &pod.Spec.Volumes[i]
		spec, claim, bad := p.volumeSpec(pod, volume)
		if claim.name.Name != "" {
			r.claims = append(r.claims, claim)
		}
		if bad == nil {
			_, bad = p.uniqueName(spec)
		}
		switch {
		case bad == nil:
			r.specs = append(r.specs, spec)
		case bad.kind != "":
			r.problems = append(r.problems, Problem{
				Kind: bad.kind, Err: bad.err,
				Pod: nameOf(pod), PodName: podName(pod), Node: types.NodeName(pod.Spec.NodeName),
				Volume: volume.Name, Claim: claim.name.Name, PVName: claim.volume,
			})
		}
	}
	return r
}

// notOurs is the trouble with volumes that we have nothing to do with.
var notOurs = &trouble{}

// uniqueName names the volume of a spec.
func (p *Populator) uniqueName(spec *cache.VolumeSpec) (v1.UniqueVolumeName, *trouble) {
	name, err := p.config.Plugins.UniqueVolumeName(spec)
	switch {
	case err == nil:
		return name, nil
	case errors.Is(err, cache.ErrNoPlugin) && migrated(spec):
		return "", &trouble{PluginMissing, fmt.Errorf("%w; Kubernetes attaches it through a CSI driver, under a name that is not known here", err)}
	case errors.Is(err, cache.ErrNoPlugin), errors.Is(err, cache.ErrNotAttachable):
		return "", notOurs
	default:
		return "", &trouble{PluginFailed, err}
	}
}

// migrated says whether the volume is of an older type that Kubernetes hands to a CSI driver behind the object's back: it
// is attached under the driver's name for it, which the object does not tell.
func migrated(spec *cache.VolumeSpec) bool {
	if pv := spec.PersistentVolume; pv != nil {
		s := &pv.Spec.PersistentVolumeSource
		return s.AWSElasticBlockStore != nil || s.AzureDisk != nil || s.Cinder != nil || s.GCEPersistentDisk != nil ||
			s.PortworxVolume != nil || s.RBD != nil || s.VsphereVolume != nil
	}
	s := &spec.Volume.VolumeSource
	return s.AWSElasticBlockStore != nil || s.AzureDisk != nil || s.Cinder != nil || s.GCEPersistentDisk != nil ||
		s.PortworxVolume != nil || s.RBD != nil || s.VsphereVolume != nil
}

// volumeSpec follows a volume of a pod to its claim, and on to its persistent volume.
func (p *Populator) volumeSpec(pod *v1.Pod, volume *v1.Volume) (*cache.VolumeSpec, claimRef, *trouble) {
	ref := claimRef{name: types.NamespacedName{Namespace: pod.Namespace}}
	readOnly, owned := false, false
	switch source := volume.VolumeSource; {
	case source.PersistentVolumeClaim != nil:
		ref.name.Name = source.PersistentVolumeClaim.ClaimName
		readOnly = source.PersistentVolumeClaim.ReadOnly
	case source.Ephemeral != nil:
		ref.name.Name = pod.Name + "-" + volume.Name
		owned = true
	default:
		return cache.NewSpecFromVolume(volume), claimRef{}, nil
	}
	claim, bad := p.claim(ref.name)
	if bad != nil {
		return nil, ref, bad
	}
	if owned && !metav1.IsControlledBy(claim, pod) {
		// Someone made a claim of that name before. Using it would give its data to the pod.
		return nil, ref, &trouble{ClaimNotOwned, fmt.Errorf("claim %q was not made for this pod: delete or rename one of them", ref.name)}
	}
	ref.volume = claim.Spec.VolumeName
	pv, bad := p.boundVolume(claim)
	if bad != nil {
		return nil, ref, bad
	}
	return cache.NewSpecFromPersistentVolume(pv, readOnly), ref, nil
}

func (p *Populator) claim(name types.NamespacedName) (*v1.PersistentVolumeClaim, *trouble) {
	claim, err := p.config.Claims.Get(name.Namespace, name.Name)
	switch {
	case apierrors.IsNotFound(err), err == nil && claim == nil:
		return nil, &trouble{ClaimMissing, fmt.Errorf("claim %q does not exist", name)}
	case err != nil:
		return nil, &trouble{LookupFailed, fmt.Errorf("look claim %q up: %w", name, err)}
	}
	return claim, nil
}

// boundVolume returns the persistent volume of a claim, if both agree on being bound.
func (p *Populator) boundVolume(claim *v1.PersistentVolumeClaim) (*v1.PersistentVolume, *trouble) {
	name, phase := nameOf(claim), claim.Status.Phase
	switch {
	case phase == v1.ClaimLost:
		return nil, &trouble{ClaimLost, fmt.Errorf("claim %q has lost its volume %q", name, claim.Spec.VolumeName)}
	case phase != v1.ClaimBound || claim.Spec.VolumeName == "":
		return nil, &trouble{ClaimUnbound, fmt.Errorf("claim %q is not bound yet (phase %q, volume %q)", name, phase, claim.Spec.VolumeName)}
	}
	pv, bad := p.volume(claim.Spec.VolumeName)
	if bad != nil {
		return nil, bad
	}
	if ref := pv.Spec.ClaimRef; ref == nil || ref.UID != claim.UID {
		return nil, &trouble{VolumeNotClaimed, fmt.Errorf("volume %q is not bound to claim %q with UID %q", pv.Name, name, claim.UID)}
	}
	return pv, nil
}

func (p *Populator) volume(name string) (*v1.PersistentVolume, *trouble) {
	pv, err := p.config.Volumes.Get(name)
	switch {
	case apierrors.IsNotFound(err), err == nil && pv == nil:
		return nil, &trouble{VolumeMissing, fmt.Errorf("persistent volume %q does not exist", name)}
	case err != nil:
		return nil, &trouble{LookupFailed, fmt.Errorf("look persistent volume %q up: %w", name, err)}
	}
	return pv, nil
}

// podName is the name of the pod in the desired world: its UID, so that a pod and the one
// that takes its place under the same name are two.
func podName(pod *v1.Pod) cache.UniquePodName {
	if pod.UID == "" {
		return cache.UniquePodName(nameOf(pod).String())
	}
	return cache.UniquePodName(pod.UID)
}

// terminated is Kubernetes' rule for pods that use no volume any more: they have ended, or
// are being deleted and no container runs.
func terminated(pod *v1.Pod) bool {
	if pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed {
		return true
	}
	return pod.DeletionTimestamp != nil && noneRuns(pod.Status.InitContainerStatuses) &&
		noneRuns(pod.Status.ContainerStatuses) && noneRuns(pod.Status.EphemeralContainerStatuses)
}

func noneRuns(containers []v1.ContainerStatus) bool {
	for _, c := range containers {
		if c.State.Terminated == nil && c.State.Waiting == nil {
			return false
		}
	}
	return true
}
