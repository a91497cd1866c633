package nodestatus_test

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/stateofworld/stateofworld/cache"
	"github.com/stateofworld/stateofworld/reconciler/nodestatus"
)

// printedNodes stands where clientset.CoreV1().Nodes() stands in a controller.
type printedNodes struct{}

func (printedNodes) Patch(_ context.Context, name string, _ types.PatchType, data []byte, _ metav1.PatchOptions, subresources ...string) (*v1.Node, error) {
	fmt.Println("PATCH", name, subresources, string(data))
	return &v1.Node{}, nil
}

func ExamplePatcher() {
	sink := nodestatus.New(printedNodes{})
	volumes := []v1.AttachedVolume{{Name: "kubernetes.io/csi/disk.example.com^vol-1", DevicePath: "/dev/vdb"}}
	if err := sink.Write(context.Background(), "node-a", volumes); err != nil {
		fmt.Println(err)
	}
	// Output:
	// PATCH node-a [status] {"status":{"volumesAttached":[{"name":"kubernetes.io/csi/disk.example.com^vol-1","devicePath":"/dev/vdb"}]}}
}

func ExampleWriter() {
	ctx := context.Background()
	actual := cache.NewActualStateOfWorld(cache.NewVolumePluginMgr(cache.CSIPlugin{}))
	writer, err := nodestatus.NewWriter(nodestatus.WriterConfig{Source: actual, Sink: nodestatus.New(printedNodes{})})
	if err != nil {
		fmt.Println(err)
		return
	}
	const other, disk v1.UniqueVolumeName = "kubernetes.io/csi/disk.example.com^vol-0", "kubernetes.io/csi/disk.example.com^vol-1"
	if err := actual.MarkVolumeAsAttached(other, nil, "node-a", "/dev/vda"); err != nil {
		fmt.Println(err)
		return
	}
	defer actual.SubscribeReports(writer.Changed)()

	if err := actual.MarkVolumeAsAttached(disk, nil, "node-a", "/dev/vdb"); err != nil {
		fmt.Println(err)
		return
	}
	if err := writer.Flush(ctx, "node-a", actual.ReportVersion("node-a")); err != nil {
		fmt.Println(err)
		return
	}

	// Before a detach: out of the report, and on only when that is written.
	if err := actual.RemoveVolumeFromReportAsAttached(disk, "node-a"); err != nil {
		fmt.Println(err)
		return
	}
	if err := writer.Flush(ctx, "node-a", actual.ReportVersion("node-a")); err != nil {
		fmt.Println("not detached:", err)
		return
	}
	fmt.Println("safe to detach")

	if err := writer.Shutdown(ctx); err != nil {
		fmt.Println(err)
	}
	// Output:
	// PATCH node-a [status] {"status":{"volumesAttached":[{"name":"kubernetes.io/csi/disk.example.com^vol-0","devicePath":"/dev/vda"},{"name":"kubernetes.io/csi/disk.example.com^vol-1","devicePath":"/dev/vdb"}]}}
	// PATCH node-a [status] {"status":{"volumesAttached":[{"name":"kubernetes.io/csi/disk.example.com^vol-0","devicePath":"/dev/vda"}]}}
	// safe to detach
}
