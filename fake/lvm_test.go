package fake_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stateofworld/stateofworld/fake"
	"github.com/stateofworld/stateofworld/lvm"
	"github.com/stateofworld/stateofworld/lvm/lvmtest"
)

const mib = 1 << 20

// newLVM is a system with one group, "vg0", of three disks of 60 MiB.
func newLVM(t *testing.T, o lvm.Options) *fake.LVM {
	t.Helper()
	l := fake.NewLVMWithOptions(o)
	l.AddVG("vg0", 4*mib, fake.Disk{Device: "/dev/sda", Size: 60 * mib}, fake.Disk{Device: "/dev/sdb", Size: 60 * mib}, fake.Disk{Device: "/dev/sdc", Size: 60 * mib})
	t.Cleanup(func() { require.NoError(t, l.Check()) })
	return l
}

func TestLVMIsABackend(t *testing.T) {
	lvmtest.Run(t, func(t *testing.T) lvmtest.Setup {
		l := newLVM(t, lvm.Options{})
		return lvmtest.Setup{
			Backend: l, VG: "vg0", DeviceMapper: true,
			Hold: func(t *testing.T, name lvm.Name) func() {
				require.NoError(t, l.Mount(name))
				return func() { require.NoError(t, l.Close(name)) }
			},
			Write: func(t *testing.T, name lvm.Name, data string) { require.NoError(t, l.Write(name, data, "ext4")) },
			Contains: func(t *testing.T, name lvm.Name, data string) bool {
				contents, err := l.Read(name)
				require.NoError(t, err)
				return slices.Contains(contents, data)
			},
			Reboot: func(*testing.T) { l.Reboot() },
		}
	})
}

func TestLVMWithoutDeviceMapperIsABackend(t *testing.T) {
	lvmtest.Run(t, func(t *testing.T) lvmtest.Setup {
		return lvmtest.Setup{Backend: newLVM(t, lvm.Options{NoDeviceMapper: true}), VG: "vg0"}
	})
}
