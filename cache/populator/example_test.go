package populator_test

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stateofworld/stateofworld/cache"
	"github.com/stateofworld/stateofworld/cache/populator"
)

// The stores stand where the listers of informers stand in a controller.
type (
	claimStore  map[string]*v1.PersistentVolumeClaim
	volumeStore map[string]*v1.PersistentVolume
)

func (s claimStore) Get(namespace, name string) (*v1.PersistentVolumeClaim, error) {
	return s[namespace+"/"+name], nil
}

func (s volumeStore) Get(name string) (*v1.PersistentVolume, error) { return s[name], nil }

func Example() {
	plugins := cache.NewVolumePluginMgr(cache.CSIPlugin{})
	desired := cache.NewDesiredStateOfWorld(plugins)
	actual := cache.NewActualStateOfWorld(plugins)
	claims, volumes := claimStore{}, volumeStore{}
	p, err := populator.New(populator.Config{
		Desired: desired, Actual: actual, Plugins: plugins, Claims: claims, Volumes: volumes,
		ManagesNode: populator.AllNodes,
	})
	if err != nil {
		fmt.Println(err)
		return
	}

	// With client-go: podInformer.AddEventHandler(p.Pods()), and so on.
	p.Pods().OnAdd(&v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web-0", UID: "pod-1"},
		Spec: v1.PodSpec{NodeName: "node-a", Volumes: []v1.Volume{{Name: "data", VolumeSource: v1.VolumeSource{
			PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "data-web-0"},
		}}}},
	}, true)
	p.Nodes().OnAdd(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-a"}}, true)
	for _, problem := range p.Problems() {
		fmt.Println(problem)
	}

	claims["default/data-web-0"] = &v1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "data-web-0", UID: "claim-1"},
		Spec:       v1.PersistentVolumeClaimSpec{VolumeName: "pv-1"},
		Status:     v1.PersistentVolumeClaimStatus{Phase: v1.ClaimBound},
	}
	volumes["pv-1"] = &v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pv-1"},
		Spec: v1.PersistentVolumeSpec{
			ClaimRef: &v1.ObjectReference{Namespace: "default", Name: "data-web-0", UID: "claim-1"},
			PersistentVolumeSource: v1.PersistentVolumeSource{
				CSI: &v1.CSIPersistentVolumeSource{Driver: "disk.example.com", VolumeHandle: "vol-1"},
			},
		},
	}
	p.Volumes().OnAdd(volumes["pv-1"], true)
	p.Claims().OnAdd(claims["default/data-web-0"], true)
	p.MarkSynced()

	for wish := range desired.VolumesToAttach() {
		fmt.Println("attach", wish.VolumeName, "to", wish.NodeName)
	}
	// Output:
	// pod "default/web-0", volume "data", node "node-a": ClaimMissing: claim "default/data-web-0" does not exist
	// attach kubernetes.io/csi/disk.example.com^vol-1 to node-a
}
