package lifecycle_test

import (
	"context"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stateofworld/stateofworld/fake"
	"github.com/stateofworld/stateofworld/lvm"
	"github.com/stateofworld/stateofworld/lvm/lifecycle"
)

// An agent on its node. With client-go, Claims and Volumes are the clientset's, and the handlers go into informers:
//
//	Claims:  func(ns string) lifecycle.ClaimClient { return client.CoreV1().PersistentVolumeClaims(ns) },
//	Volumes: client.CoreV1().PersistentVolumes(),
//	...
//	claimInformer.AddEventHandler(agent.Claims())
//	volumeInformer.AddEventHandler(agent.Volumes())
func ExampleAgent() {
	api, host := fake.NewAPI(), fake.NewLVM() // in production: a clientset, and lvm.NewCLI(command.Host(), lvm.Options{})
	host.AddVG("vg0", 0, fake.Disk{Device: "/dev/sda", Size: 1 << 30})

	marked := make(chan string, 1)
	agent, err := lifecycle.NewAgent(lifecycle.AgentConfig{
		Node:    "node-a",
		Backend: host,
		Claims:  func(ns string) lifecycle.ClaimClient { return api.Claims(ns) },
		Volumes: api.Volumes(),
		Notices: func(n lifecycle.Notice) {
			if n.Type == lifecycle.NoticeCreated {
				marked <- n.Message
			}
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	api.Feed(agent.Claims(), agent.Volumes(), nil)

	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	ended := make(chan error)
	go func() { ended <- agent.Run(ctx) }()

	claim := fake.NewClaim("default/data", "node-a")
	claim.Annotations["pv.csi.alibabacloud.com/volume.lifecycle"] = "creating"
	claim.Annotations["pv.csi.alibabacloud.com/volume.spec"] = `{"volumeGroup":"vg0","name":"pvc-1","size":10000000}`
	if _, err := api.Claims("default").Create(ctx, claim, metav1.CreateOptions{}); err != nil {
		fmt.Println(err)
	}
	fmt.Println(<-marked)
	claim, err = api.Claims("default").Get(ctx, "data", metav1.GetOptions{})
	fmt.Println(claim.Annotations["pv.csi.alibabacloud.com/volume.lifecycle"], err)
	stop()
	fmt.Println(<-ended)
	// Output:
	// logical volume vg0/pvc-1 of 12582912 bytes is there for claim default/data
	// created <nil>
	// context canceled
}

// A provisioner beside the API. Its callers learn why a node could not do it.
func ExampleProvisioner() {
	api, host := fake.NewAPI(), fake.NewLVM()
	host.AddVG("vg0", 0, fake.Disk{Device: "/dev/sda", Size: 1 << 30})
	agent, err := lifecycle.NewAgent(lifecycle.AgentConfig{
		Node: "node-a", Backend: host, Volumes: api.Volumes(),
		Claims: func(ns string) lifecycle.ClaimClient { return api.Claims(ns) },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	api.Feed(agent.Claims(), agent.Volumes(), nil)
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	ended := make(chan error)
	go func() { ended <- agent.Run(ctx) }()

	provisioner, err := lifecycle.NewProvisioner(lifecycle.ProvisionerConfig{
		Claims:  func(ns string) lifecycle.ClaimClient { return api.Claims(ns) },
		Volumes: api.Volumes(),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	claim, err := api.Claims("default").Create(ctx, fake.NewClaim("data", "node-a"), metav1.CreateOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	spec := lifecycle.CreateSpec{VolumeGroup: "vg0", Name: "pvc-1", Size: 2 << 30}
	err = provisioner.CreateVolumeWithAnnotations(ctx, "default", "data", spec)
	fmt.Println("no space:", errors.Is(err, lvm.ErrNoSpace)) // a CSI driver answers with ResourceExhausted, and the pod is scheduled anew
	spec.Size = 512 << 20
	fmt.Println("created:", provisioner.CreateVolumeWithAnnotations(ctx, "default", "data", spec))

	// The driver makes the volume, and later removes it.
	volume := fake.NewVolume("pvc-1", lifecycle.DefaultDriver, "node-a", claim)
	if _, err := api.Volumes().Create(ctx, volume, metav1.CreateOptions{}); err != nil {
		fmt.Println(err)
	}
	fmt.Println("deleted:", provisioner.DeleteVolumeWithAnnotations(ctx, "pvc-1", spec.LV()))
	stop()
	<-ended
	// Output:
	// no space: true
	// created: <nil>
	// deleted: <nil>
}
