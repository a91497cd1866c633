package main

import (
	v1 "k8s.io/api/core/v1"
)

// The types below have the fields that are read; everything else in a dump, which is nearly all of it, is passed over.

// head is what every object has.
type head struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Metadata   metadata `json:"metadata"`
}

func (h *head) header() *head { return h }

// orElse gives an object that does not say what it is the type that its list says.
func (h *head) orElse(kind head) {
	if h.Kind == "" {
		h.Kind, h.APIVersion = kind.Kind, kind.APIVersion
	}
}

// object is one of the types below.
type object interface {
	header() *head
	addTo(d *dump) error
}

func newObject(kind string) object {
	switch kind {
	case "Node":
		return &nodeFields{}
	case "Pod":
		return &podFields{}
	case "PersistentVolumeClaim":
		return &claimFields{}
	case "PersistentVolume":
		return &volumeFields{}
	case "VolumeAttachment":
		return &attachmentFields{}
	default:
		return &driverFields{}
	}
}

type metadata struct {
	Name              string `json:"name"`
	Namespace         string `json:"namespace"`
	UID               string `json:"uid"`
	CreationTimestamp string `json:"creationTimestamp"`
	DeletionTimestamp string `json:"deletionTimestamp"`
	Annotations       struct {
		Managed *string `json:"volumes.kubernetes.io/controller-managed-attach-detach"`
	} `json:"annotations"`
	OwnerReferences []struct {
		UID        string `json:"uid"`
		Controller *bool  `json:"controller"`
	} `json:"ownerReferences"`
}

type containerStatus struct {
	State struct {
		Waiting    *struct{} `json:"waiting"`
		Terminated *struct{} `json:"terminated"`
	} `json:"state"`
}

type podFields struct {
	head
	Spec struct {
		NodeName string `json:"nodeName"`
		Volumes  []struct {
			Name      string                                `json:"name"`
			Claim     *v1.PersistentVolumeClaimVolumeSource `json:"persistentVolumeClaim"`
			Ephemeral *struct{}                             `json:"ephemeral"`
			CSI       *struct {
				Driver string `json:"driver"`
			} `json:"csi"`
			foreignSource
		} `json:"volumes"`
	} `json:"spec"`
	Status struct {
		Phase      string            `json:"phase"`
		Init       []containerStatus `json:"initContainerStatuses"`
		Containers []containerStatus `json:"containerStatuses"`
		Ephemeral  []containerStatus `json:"ephemeralContainerStatuses"`
	} `json:"status"`
}

type nodeFields struct {
	head
	Spec struct {
		Taints []v1.Taint `json:"taints"`
	} `json:"spec"`
	Status struct {
		Conditions []struct {
			Type   string `json:"type"`
			Status string `json:"status"`
		} `json:"conditions"`
		VolumesAttached []v1.AttachedVolume `json:"volumesAttached"`
		VolumesInUse    []string            `json:"volumesInUse"`
	} `json:"status"`
}

type claimFields struct {
	head
	Spec struct {
		VolumeName string `json:"volumeName"`
	} `json:"spec"`
	Status struct {
		Phase string `json:"phase"`
	} `json:"status"`
}

type volumeSpec struct {
	AccessModes []string `json:"accessModes"`
	CSI         *struct {
		Driver       string `json:"driver"`
		VolumeHandle string `json:"volumeHandle"`
	} `json:"csi"`
	ClaimRef *struct {
		Namespace string `json:"namespace"`
		Name      string `json:"name"`
		UID       string `json:"uid"`
	} `json:"claimRef"`
	foreignSource
}

type volumeFields struct {
	head
	Spec volumeSpec `json:"spec"`
}

type attachmentFields struct {
	head
	Spec struct {
		Attacher string `json:"attacher"`
		NodeName string `json:"nodeName"`
		Source   struct {
			PersistentVolumeName string      `json:"persistentVolumeName"`
			InlineVolumeSpec     *volumeSpec `json:"inlineVolumeSpec"`
		} `json:"source"`
	} `json:"spec"`
	Status struct {
		Attached bool `json:"attached"`
	} `json:"status"`
}

type driverFields struct {
	head
	Spec struct {
		AttachRequired *bool `json:"attachRequired"`
	} `json:"spec"`
}

// foreignSource finds volumes that may be attached to nodes, or could be thought to be, by a plugin that is not here.
type foreignSource struct {
	AWSElasticBlockStore *struct{} `json:"awsElasticBlockStore"`
	AzureDisk            *struct{} `json:"azureDisk"`
	AzureFile            *struct{} `json:"azureFile"`
	CephFS               *struct{} `json:"cephfs"`
	Cinder               *struct{} `json:"cinder"`
	FC                   *struct{} `json:"fc"`
	FlexVolume           *struct{} `json:"flexVolume"`
	Flocker              *struct{} `json:"flocker"`
	GCEPersistentDisk    *struct{} `json:"gcePersistentDisk"`
	Glusterfs            *struct{} `json:"glusterfs"`
	HostPath             *struct{} `json:"hostPath"`
	ISCSI                *struct{} `json:"iscsi"`
	Local                *struct{} `json:"local"`
	NFS                  *struct{} `json:"nfs"`
	PhotonPersistentDisk *struct{} `json:"photonPersistentDisk"`
	PortworxVolume       *struct{} `json:"portworxVolume"`
	Quobyte              *struct{} `json:"quobyte"`
	RBD                  *struct{} `json:"rbd"`
	ScaleIO              *struct{} `json:"scaleIO"`
	StorageOS            *struct{} `json:"storageos"`
	VsphereVolume        *struct{} `json:"vsphereVolume"`
}
