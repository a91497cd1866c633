// Package fleet makes the objects that every side of the comparison is given.
package fleet

import (
	"fmt"
	"math/rand/v2"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/stateofworld/stateofworld/cache"
)

const (
	// PerNode is how many volumes a node has.
	PerNode = 30
	// Driver is the CSI driver of all volumes.
	Driver = "disk.csi.example.com"
	// DevicePath is where every volume appears on its node.
	DevicePath = "/dev/xvdba"
)

// Attachment is what the API holds of one volume that one pod uses on one node. Names are as long as they are in a cloud.
type Attachment struct {
	Volume  v1.UniqueVolumeName
	Node    types.NodeName
	Spec    *cache.VolumeSpec
	PodName string
	Pod     *v1.Pod
	// Peer is the spec in the type of a peer, if one needs it.
	Peer any
}

// Fleet is n attachments of n exclusive volumes on n/PerNode nodes, in the order of nodes.
type Fleet struct {
	Nodes       []types.NodeName
	Attachments []Attachment
}

// New makes the objects. Pods that are on one node share one object: no side looks into it, and thousands of copies would make
// every garbage collection measure them.
func New(n int) *Fleet {
	f := &Fleet{Attachments: make([]Attachment, n)}
	var pod *v1.Pod
	for i := range f.Attachments {
		if i%PerNode == 0 {
			k := len(f.Nodes)
			f.Nodes = append(f.Nodes, types.NodeName(fmt.Sprintf("ip-10-%d-%d-%d.eu-central-1.compute.internal", k>>16, k>>8&255, k&255)))
			pod = &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("web-%d", k)}}
		}
		handle := fmt.Sprintf("vol-0a1b2c3d4e%07d", i)
		f.Attachments[i] = Attachment{
			Volume:  v1.UniqueVolumeName("kubernetes.io/csi/" + Driver + "^" + handle),
			Node:    f.Nodes[len(f.Nodes)-1],
			PodName: fmt.Sprintf("6ba7b810-9dad-11d1-80b4-%012d", i),
			Pod:     pod,
			Spec: cache.NewSpecFromPersistentVolume(&v1.PersistentVolume{
				ObjectMeta: metav1.ObjectMeta{Name: handle},
				Spec: v1.PersistentVolumeSpec{
					AccessModes:            []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
					PersistentVolumeSource: v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{Driver: Driver, VolumeHandle: handle}},
				},
			}, false),
		}
	}
	return f
}

// Shuffled returns the attachments in a random order that is the same in every run: what is asked for is then as cold as it is in
// a large world.
func (f *Fleet) Shuffled() []*Attachment {
	shuffled := make([]*Attachment, len(f.Attachments))
	for i := range f.Attachments {
		shuffled[i] = &f.Attachments[i]
	}
	rand.New(rand.NewPCG(1, 2)).Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
	return shuffled
}

// InUse returns for each node the names of its volumes, as its status lists them.
func (f *Fleet) InUse() map[types.NodeName][]v1.UniqueVolumeName {
	lists := make(map[types.NodeName][]v1.UniqueVolumeName, len(f.Nodes))
	for i := range f.Attachments {
		a := &f.Attachments[i]
		lists[a.Node] = append(lists[a.Node], a.Volume)
	}
	return lists
}
