package hostvolume_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stateofworld/stateofworld/executor/command"
	"github.com/stateofworld/stateofworld/fake"
)

// The fake host answers as the real programs do: the same script on both gives the same exit codes and, where callers
// read it, the same output.
func TestRealProgramsAndTheFakeHostAnswerAlike(t *testing.T) {
	m := realMachine(t, "mkfs.ext4", "mkfs.xfs")
	dir := t.TempDir()
	blank, other, protected := m.disk("blank", 512*mib), m.disk("other", 512*mib), m.disk("protected", 512*mib, "--read-only")
	require.NoError(t, os.MkdirAll(dir+"/a/in", 0o755))
	require.NoError(t, os.MkdirAll(dir+"/b", 0o755))
	require.NoError(t, os.WriteFile(dir+"/file", nil, 0o600))

	h := fake.NewHost()
	for _, disk := range []string{"blank", "other", "protected"} {
		h.AddDisk("/dev/"+disk, fake.HostDisk{Size: 512 * mib, ReadOnly: disk == "protected"})
	}
	h.Mkdir("/dir/a/in")
	h.Mkdir("/dir/b")
	h.WriteFile("/dir/file", nil)

	ctx := context.Background()
	real := strings.NewReplacer("BLANK", blank, "OTHER", other, "PROTECTED", protected, "DIR", dir)
	faked := strings.NewReplacer("BLANK", "/dev/blank", "OTHER", "/dev/other", "PROTECTED", "/dev/protected", "DIR", "/dir")
	compare := func(line string, stdout bool) {
		t.Helper()
		r, err := command.Host().Run(ctx, command.Command{Argv: strings.Fields(real.Replace(line))})
		require.NoError(t, err, line)
		f, err := h.Run(ctx, command.Command{Argv: strings.Fields(faked.Replace(line))})
		require.NoError(t, err, line)
		require.Equal(t, r.ExitCode, f.ExitCode, "%s: %s", line, r.Stderr)
		if stdout {
			require.Equal(t, strings.NewReplacer(blank, "/dev/blank", other, "/dev/other", protected, "/dev/protected").Replace(string(r.Stdout)), string(f.Stdout), line)
		}
	}
	const probe = "blkid -p -s TYPE -s PTTYPE -o export "
	for _, line := range []string{
		probe + "BLANK", probe + "/dev/absent",
		"blockdev --getsize64 --getro BLANK", "blockdev --getsize64 --getro PROTECTED", "blockdev --getsize64 --getro /dev/absent",
		"mkfs.ext4 -q PROTECTED", "mkfs.ext4 -q /dev/absent", "mkfs.ext4 -q BLANK",
		probe + "BLANK",
		"mkfs.xfs -q BLANK", "mkfs.xfs -q OTHER",
		probe + "OTHER",
		"fsck.ext4 -p /dev/absent", "fsck.ext4 -p OTHER",
		"mount -t ext4 -o rw -- PROTECTED DIR/b", "mount -t ext4 -o rw -- OTHER DIR/b", "mount -t ext4 -o rw -- BLANK DIR/absent", "mount -t ext4 -o rw -- BLANK DIR/file",
		"mount -t ext4 -o rw -- /dev/absent DIR/b", "mount -t ext4 -o rw -- DIR/file DIR/b",
		"umount -- DIR/b", "umount -- DIR/absent",
		"mount -t ext4 -o rw -- BLANK DIR/a", "mount -t ext4 -o rw -- BLANK DIR/a", "mount -t ext4 -o rw -- BLANK DIR/b", "mount -t ext4 -o ro -- BLANK DIR/b",
		"mkfs.ext4 -q BLANK", "mkfs.xfs -q BLANK", "fsck.ext4 -p BLANK",
		"mount -t tmpfs -o size=1048577,mode=0750 -- tmpfs DIR/a/lost+found",
		"umount -- DIR/a", "umount -- DIR/a/lost+found", "umount -- DIR/a", "umount -- DIR/a", "umount -- DIR/b", "umount -- DIR/b",
		"chmod 1777 -- DIR/b", "chmod 1777 -- DIR/absent",
		"mkfs.ext4 -q OTHER", // over an xfs, silently
		probe + "OTHER",
		"mount -t xfs -o ro,norecovery -- OTHER DIR/b", "mount -t ext4 -o ro,noload -- OTHER DIR/b", "umount -- DIR/b",
	} {
		compare(line, strings.HasPrefix(line, "blkid") || strings.HasPrefix(line, "blockdev"))
	}

	t.Run("files", func(t *testing.T) {
		require.NoError(t, os.Symlink("a", dir+"/link"))
		require.NoError(t, os.Symlink("nowhere", dir+"/dangling"))
		h.Symlink("a", "/dir/link")
		h.Symlink("nowhere", "/dir/dangling")
		kinds := []error{nil, fs.ErrNotExist, fs.ErrExist, fs.ErrInvalid}
		same := func(what string, r, f error) {
			t.Helper()
			for _, kind := range kinds[1:] {
				require.Equal(t, errors.Is(r, kind), errors.Is(f, kind), "%s: %v, fake: %v", what, r, f)
			}
			require.Equal(t, r == nil, f == nil, "%s: %v, fake: %v", what, r, f)
		}
		host := command.Host()
		for _, path := range []string{"", "/a", "/link", "/link/in", "/dangling", "/file", "/file/x", "/absent", "/a/../b", "/dangling/x"} {
			on := func(do func(r command.Runner, path string) error) {
				t.Helper()
				same(path, do(host, dir+path), do(h, "/dir"+path))
			}
			on(func(r command.Runner, p string) error { _, err := r.Stat(ctx, p); return err })
			on(func(r command.Runner, p string) error { _, err := r.Lstat(ctx, p); return err })
			on(func(r command.Runner, p string) error { _, err := r.EvalSymlinks(ctx, p); return err })
			on(func(r command.Runner, p string) error { _, err := r.ReadFile(ctx, p); return err })
			on(func(r command.Runner, p string) error { return r.CreateFile(ctx, p, 0o644) })
			on(func(r command.Runner, p string) error { return r.MkdirAll(ctx, p, 0o755) })
			on(func(r command.Runner, p string) error { _, err := r.ReadAt(ctx, p, 0, 1); return err })
		}
		for _, path := range []string{"/a", "/absent", "/dangling", "/link", "/a/in", "/a", "/b", ""} {
			same("remove "+path, host.Remove(ctx, dir+path), h.Remove(ctx, "/dir"+path))
		}
	})
}
