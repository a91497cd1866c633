package hostvolume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// PrepareVolumesAndGetBindings makes the volumes of a spec exist on the host and returns the bind mounts of every
// container, by the name of the container (of any kind) and in the order of its volumeMounts.
//
// It is idempotent: on a host that is prepared for the same spec it changes nothing and returns the same. When it
// fails, the mounts that this call has made are taken down again. A filesystem that it has made stays; so does a
// directory or file that a hostPath or subPath asked for.
//
// Errors: *[InvalidSpecError] alone when nothing else is wrong; otherwise *[PrepareError], whose parts are of the
// classes in this package and mostly *[VolumeError]. When ctx ends while mkfs or fsck runs, the error is
// [ErrInProgress], the program goes on, and the next call waits for it.
func (e *Env) PrepareVolumesAndGetBindings(ctx context.Context, spec *v1.PodSpec) (map[string][]HostPathBindConfiguration, error) {
	s, err := e.settings()
	if err != nil {
		return nil, err
	}
	plan, faults := verify(spec, s)
	var errs []error
	if len(faults) > 0 {
		errs = append(errs, &InvalidSpecError{Faults: faults})
	}
	errs = append(errs, e.attachModes(ctx, plan.volumes)...)
	if len(errs) > 0 {
		return nil, prepareError(errs)
	}
	release, err := e.acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	p := &preparation{env: e, settings: s, plan: plan, devices: map[*volume]blockDevice{}, steps: map[*volume]step{}, roots: map[*volume]string{}}
	if errs := p.inspect(ctx); len(errs) > 0 {
		return nil, prepareError(errs)
	}
	bindings, err := p.act(ctx)
	if err != nil {
		return nil, p.undo(ctx, err)
	}
	return bindings, nil
}

func prepareError(errs []error) error {
	if invalid, ok := errs[0].(*InvalidSpecError); ok && len(errs) == 1 {
		return invalid
	}
	return &PrepareError{Errs: errs}
}

// preparation is one call of PrepareVolumesAndGetBindings: inspect, then act, then perhaps undo.
type preparation struct {
	env      *Env
	settings settings
	plan     plan

	base     string // with links resolved
	baseMade bool   // by this call
	before   mountTable
	devices  map[*volume]blockDevice
	steps    map[*volume]step

	roots  map[*volume]string // host path of each volume that is ready
	mounts []string           // mount points at which this call has tried to mount, in order
	dirs   []string           // directories below base that this call has made, in order
}

// inspect looks at everything that the plan needs and changes nothing. It returns all that is wrong.
func (p *preparation) inspect(ctx context.Context) []error {
	var err error
	if p.base, err = p.env.realBase(ctx, p.settings.BaseDir); err != nil {
		return []error{err}
	}
	errs := p.findDevices(ctx)
	if p.before, err = p.env.readMounts(ctx); err != nil {
		return append(errs, err)
	}
	for _, v := range p.plan.volumes {
		if _, found := p.devices[v]; !found && v.needsDevice() {
			continue // its error is there already
		}
		if p.steps[v], err = p.inspectVolume(ctx, v); err != nil {
			errs = append(errs, volumeError(v, err))
		}
	}
	return errs
}

func (p *preparation) inspectVolume(ctx context.Context, v *volume) (step, error) {
	if v.kind == kindHostPath {
		return stepNone, p.env.checkHostPath(ctx, v, true)
	}
	if err := p.checkDirs(ctx, v); err != nil {
		return 0, err
	}
	switch v.kind {
	case kindTmpfs:
		return p.inspectTmpfs(v)
	case kindDirectory:
		return stepNone, p.notMounted(v)
	default:
		return p.inspectDisk(ctx, v)
	}
}

// findDevices resolves all devices and finds those that two volumes share.
func (p *preparation) findDevices(ctx context.Context) []error {
	var errs []error
	deadline := p.env.clock().Now().Add(p.settings.DeviceWait)
	for _, v := range p.plan.volumes {
		if !v.needsDevice() {
			continue
		}
		var device blockDevice
		var err error
		if v.kind == kindDisk {
			device, err = p.env.findDevice(ctx, v.disk.path, deadline)
		} else if device, err = p.env.lookUpDevice(ctx, v.hostPath); errors.Is(err, ErrNoDevice) || errors.Is(err, ErrNotBlockDevice) {
			err = fmt.Errorf("%w: %w", ErrHostPath, err)
		}
		if err != nil {
			errs = append(errs, volumeError(v, err))
			continue
		}
		p.devices[v] = device
	}
	var faults field.ErrorList
	for i, a := range p.plan.volumes {
		for _, b := range p.plan.volumes[:i] {
			da, oka := p.devices[a]
			db, okb := p.devices[b]
			if oka && okb && da.number == db.number && (a.kind == kindDisk || b.kind == kindDisk) {
				faults = append(faults, field.Invalid(field.NewPath("spec", "volumes").Index(a.index), a.name,
					fmt.Sprintf("is on the same device (%s, %v) as volume %s", da.path, da.number, b.name)))
			}
		}
	}
	if len(faults) > 0 {
		errs = append([]error{&InvalidSpecError{Faults: faults}}, errs...)
	}
	return errs
}

// act makes what inspect has found to be missing.
func (p *preparation) act(ctx context.Context) (map[string][]HostPathBindConfiguration, error) {
	for _, v := range p.plan.volumes {
		root, err := p.make(ctx, v)
		if err != nil {
			return nil, volumeError(v, err)
		}
		p.roots[v] = root
	}
	return p.bindings(ctx)
}

// make makes one volume and returns its path on the host.
func (p *preparation) make(ctx context.Context, v *volume) (string, error) {
	switch {
	case v.kind == kindHostPath:
		return v.hostPath, p.env.makeHostPath(ctx, v)
	case v.kind == kindDirectory:
		return p.makeDirectory(ctx, v)
	}
	if v.kind == kindDisk && p.steps[v] != stepFormat { // format remembers by itself
		if err := p.env.remember(ctx, p.settings.StateDir, v.disk.path); err != nil {
			return "", err
		}
	}
	var err error
	switch p.steps[v] {
	case stepNone:
		return v.mountPoint(p.base), nil
	case stepCheck:
		err = p.check(ctx, v)
	case stepFormat:
		err = p.format(ctx, v)
	}
	if err != nil {
		return "", err
	}
	if err := p.makeDir(ctx, v, 0o755); err != nil {
		return "", err
	}
	return v.mountPoint(p.base), p.mount(ctx, v)
}

// bindings are the result. All volumes are ready by now.
func (p *preparation) bindings(ctx context.Context) (map[string][]HostPathBindConfiguration, error) {
	out := make(map[string][]HostPathBindConfiguration, len(p.plan.containers))
	for _, c := range p.plan.containers {
		binds := make([]HostPathBindConfiguration, 0, len(c.mounts))
		for _, m := range c.mounts {
			hostPath, err := p.subPath(ctx, m)
			if err != nil {
				return nil, volumeError(m.volume, err)
			}
			binds = append(binds, HostPathBindConfiguration{HostPath: hostPath, ContainerPath: m.mountPath, ReadOnly: m.readOnly, MountPropagation: m.propagation})
		}
		out[c.name] = binds
	}
	return out, nil
}

// volumeError says which volume an error is about.
func volumeError(v *volume, err error) error {
	out := &VolumeError{Volume: v.name, Err: err}
	if v.kind == kindDisk {
		out.Device = v.disk.path
	}
	if place := (*placeError)(nil); errors.As(err, &place) {
		out.Place = place.place
	}
	return out
}

// realBase is the base directory with all links resolved, as mountinfo shows it.
func (e *Env) realBase(ctx context.Context, base string) (string, error) {
	resolved, err := e.Runner.EvalSymlinks(ctx, base)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return base, nil // nothing can be mounted below it
	case err != nil:
		return "", fmt.Errorf("base directory: %w", hostError(err))
	case resolved == "/":
		return "", fmt.Errorf("%w: base directory %s is the root", ErrUnsafePath, base)
	}
	return resolved, nil
}
