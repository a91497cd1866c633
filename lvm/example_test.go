package lvm_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/stateofworld/stateofworld/executor/command"
	"github.com/stateofworld/stateofworld/fake"
	"github.com/stateofworld/stateofworld/lvm"
)

func ExampleBackend() {
	ctx := context.Background()
	disk := fake.NewLVM() // lvm.NewCLI(command.Host(), lvm.Options{}) on a real machine
	disk.AddVG("vg0", 4<<20, fake.Disk{Device: "/dev/sda", Size: 1 << 30})
	var backend lvm.Backend = disk

	lv, err := backend.Create(ctx, lvm.CreateOptions{VG: "vg0", Name: lvm.MapName("snapshot-1"), Size: 100<<20 + 1, Tags: []string{"claim=default/data"}})
	fmt.Println(lv.Name, lv.Size>>20, "MiB", lv.DevicePath(), err)

	_, err = backend.Create(ctx, lvm.CreateOptions{VG: "vg0", Name: "big", Size: 1 << 40})
	fmt.Println(errors.Is(err, lvm.ErrNoSpace))

	fmt.Println(backend.Remove(ctx, lv.Name, lvm.RemoveOptions{UUID: lv.UUID, Wipe: lvm.WipeZero}))
	fmt.Println(backend.Remove(ctx, lv.Name, lvm.RemoveOptions{UUID: lv.UUID}), "(again)")
	_, err = backend.Get(ctx, lv.Name)
	fmt.Println(errors.Is(err, lvm.ErrNotFound))
	// Output:
	// vg0/m+snapshot-1 104 MiB /dev/vg0/m+snapshot-1 <nil>
	// true
	// <nil>
	// <nil> (again)
	// true
}

func ExampleNewCLI() {
	// In a privileged container that shares the host's PID namespace: lvm2 is run on the host.
	runner, err := command.NSEnter(command.NSEnterOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	backend := lvm.NewCLI(runner, lvm.Options{})
	_, err = backend.Get(context.Background(), lvm.Name{VG: "vg0", LV: "--force"})
	fmt.Println(err)
	// Output:
	// lvm: get vg0/--force: invalid logical volume name "--force": begins with a hyphen
}
