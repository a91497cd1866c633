package hostvolume

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/stateofworld/stateofworld/executor/command"
)

// maxPageSize is what the kernel rounds the size of a tmpfs up by, at most.
const maxPageSize = 64 << 10

// notMounted makes sure that nothing is mounted where the directory of a volume is.
func (p *preparation) notMounted(v *volume) error {
	if m, ok := p.before.at(v.mountPoint(p.base)); ok {
		return &placeError{m.path, fmt.Errorf("%w: %s (%s) is mounted at %s", ErrTargetInUse, m.source, m.fsType, m.path)}
	}
	return nil
}

func (p *preparation) inspectTmpfs(v *volume) (step, error) {
	m, ok := p.before.at(v.mountPoint(p.base))
	if !ok {
		return stepMount, nil
	}
	return stepNone, checkTmpfsMount(m, v)
}

// checkTmpfsMount reports whether a mount is the one that a volume wants.
func checkTmpfsMount(m mount, v *volume) error {
	size, ok := tmpfsSize(m.superOptions)
	switch {
	case m.fsType != "tmpfs" || m.root != "/" || m.readOnly:
		return &placeError{m.path, fmt.Errorf("%w: %s (%s) is mounted at %s", ErrTargetInUse, m.source, m.fsType, m.path)}
	case v.size == 0 && ok, v.size > 0 && (!ok || size < v.size || size >= v.size+maxPageSize):
		return &placeError{m.path, fmt.Errorf("%w: the tmpfs at %s has options %s, and the spec wants size %d", ErrTargetInUse, m.path, m.superOptions, v.size)}
	}
	return nil
}

// tmpfsSize is the size in bytes among the options of a tmpfs. There is none when it was mounted without one.
func tmpfsSize(options string) (int64, bool) {
	for option := range strings.SplitSeq(options, ",") {
		text, ok := strings.CutPrefix(option, "size=")
		if !ok {
			continue
		}
		digits := strings.TrimRight(text, "kmg")
		n, err := strconv.ParseInt(digits, 10, 64)
		shift, known := map[string]int{"": 0, "k": 10, "m": 20, "g": 30}[text[len(digits):]]
		if err != nil || !known || n < 0 || n<<shift>>shift != n {
			return 0, false
		}
		return n << shift, true
	}
	return 0, false
}

// mount mounts a tmpfs or disk, and does not believe that it did before mountinfo shows it.
func (p *preparation) mount(ctx context.Context, v *volume) error {
	target := v.mountPoint(p.base)
	argv := []string{"mount", "-t", v.disk.fsType, "-o", v.disk.mountOptions(p.settings.SkipReplay), "--", p.devices[v].path, target}
	if v.kind == kindTmpfs {
		mode := v.mode.Perm()
		options := fmt.Sprintf("rw,mode=%04o", mode)
		if v.mode != mode { // sticky
			options = fmt.Sprintf("rw,mode=1%03o", mode)
		}
		if v.size > 0 {
			options += fmt.Sprintf(",size=%d", v.size)
		}
		argv = []string{"mount", "-t", "tmpfs", "-o", options, "--", "tmpfs", target}
	}
	p.mounts = append(p.mounts, target) // before: a mount that fails may have happened
	result, runErr := p.env.Runner.Run(ctx, command.Command{Argv: argv})
	table, err := p.env.readMounts(ctx)
	m, ok := table.at(target)
	switch {
	case ok && table.count(target) > p.before.count(target):
		if v.kind == kindTmpfs {
			return checkTmpfsMount(m, v)
		}
		return checkDiskMount(m, v, p.devices[v])
	case runErr != nil:
		return programError(ErrNotMounted, runErr)
	case err != nil:
		return err
	case result.ExitCode != 0:
		return fmt.Errorf("%w: %w", ErrNotMounted, commandError(argv, result))
	default:
		return &placeError{target, fmt.Errorf("%w: mount reported success, but nothing is mounted at %s", ErrNotMounted, target)}
	}
}
