package hostvolume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/stateofworld/stateofworld/executor/command"
)

// kind is a class of error, for errors.Is. It knows whether trying again, without anyone changing the spec, the options
// or the device, can help.
type kind struct {
	text  string
	retry bool
}

func (k *kind) Error() string   { return k.text }
func (k *kind) Retryable() bool { return k.retry }

// The classes of errors. Those marked (retry) can go away by themselves.
var (
	// ErrInvalidSpec: the spec is wrong or asks for something that is not supported; see [InvalidSpecError].
	ErrInvalidSpec error = &kind{text: "invalid pod spec"}
	// ErrInvalidOptions: the Env is not usable as it is configured.
	ErrInvalidOptions error = &kind{text: "invalid options"}
	// ErrMetadata: the list of attached disks could not be had. (retry)
	ErrMetadata error = &kind{text: "list of attached disks not available", retry: true}
	// ErrBadMetadata: the list of attached disks says something that is not understood.
	ErrBadMetadata error = &kind{text: "list of attached disks not understood"}
	// ErrNoDevice: the disk is not attached, or its device node has not appeared yet. (retry)
	ErrNoDevice error = &kind{text: "device not found", retry: true}
	// ErrNotBlockDevice: the path of a device is something else.
	ErrNotBlockDevice error = &kind{text: "not a block device"}
	// ErrDeviceUnreadable: the device did not answer a read, or has no size. (retry)
	ErrDeviceUnreadable error = &kind{text: "device cannot be read", retry: true}
	// ErrDeviceBusy: the device is mounted somewhere else; VolumeError.Place says where. (retry)
	ErrDeviceBusy error = &kind{text: "device is in use", retry: true}
	// ErrInProgress: mkfs or fsck still runs on the device; the next call waits for it. (retry)
	ErrInProgress error = &kind{text: "device is still being made ready", retry: true}
	// ErrHasPartitions: the device holds a partition table, and the spec does not choose a partition.
	ErrHasPartitions error = &kind{text: "device contains a partition table"}
	// ErrWrongFilesystem: the device holds something else than the filesystem that the spec asks for.
	ErrWrongFilesystem error = &kind{text: "device holds something else"}
	// ErrAmbiguous: the probe of the device gave an answer that does not say what it holds.
	ErrAmbiguous error = &kind{text: "device content is not clear"}
	// ErrNotBlank: no filesystem is recognised, yet the device is not empty.
	ErrNotBlank error = &kind{text: "device is not blank"}
	// ErrFilesystemLost: a filesystem was seen on this device before, and is not recognised any more.
	ErrFilesystemLost error = &kind{text: "the filesystem that was on the device is not recognised any more"}
	// ErrFormatNotAllowed: the device is blank, and the policy is FormatNever.
	ErrFormatNotAllowed error = &kind{text: "device is blank and must not be formatted"}
	// ErrFormatFailed: mkfs failed, for instance because the device is in use in another mount namespace, or left no
	// filesystem behind. (retry)
	ErrFormatFailed error = &kind{text: "no filesystem could be made", retry: true}
	// ErrNeedsRepair: fsck found what it does not repair by itself; its output is in the [CommandError].
	ErrNeedsRepair error = &kind{text: "filesystem needs manual repair: run fsck by hand"}
	// ErrCheckFailed: fsck could not do its work, for instance because the device is in use in another mount namespace.
	// (retry)
	ErrCheckFailed error = &kind{text: "filesystem could not be checked", retry: true}
	// ErrReadOnlyDevice: writing is wanted, and the device, its attachment or its mount is read-only.
	ErrReadOnlyDevice error = &kind{text: "device is read-only"}
	// ErrUnformattedReadOnly: the device is blank, and only to be read.
	ErrUnformattedReadOnly error = &kind{text: "device has no filesystem and is only to be read"}
	// ErrTargetInUse: something else, or the same with other options, is mounted where the volume belongs: unmount it
	// first.
	ErrTargetInUse error = &kind{text: "mount point is taken"}
	// ErrNotMounted: mount failed, or left nothing behind in mountinfo. (retry)
	ErrNotMounted error = &kind{text: "not mounted", retry: true}
	// ErrUnsafePath: a symbolic link or a file is in the way where a directory is expected.
	ErrUnsafePath error = &kind{text: "unsafe path"}
	// ErrHostPath: the host path is missing or not of the type that the spec wants.
	ErrHostPath error = &kind{text: "host path is not as the spec wants it"}
	// ErrUnmountBusy: something is still mounted after umount. (retry)
	ErrUnmountBusy error = &kind{text: "still mounted", retry: true}
	// ErrMountTable: mountinfo could not be read or parsed. (retry)
	ErrMountTable error = &kind{text: "mount table not readable", retry: true}
	// ErrNoProgram: a program that is needed is not installed.
	ErrNoProgram error = &kind{text: "program not found"}
	// ErrHost: another operation on the host failed. (retry)
	ErrHost error = &kind{text: "operation on the host failed", retry: true}
)

// Retryable reports whether trying again, with the same spec and options and nobody touching the devices, can help. The
// end of a context can always be tried again. An error that joins several is retryable when all of them are.
func Retryable(err error) bool {
	if err == nil {
		return false
	}
	var r interface{ Retryable() bool }
	if errors.As(err, &r) {
		return r.Retryable()
	}
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

func allRetryable(errs []error) bool {
	for _, err := range errs {
		if !Retryable(err) {
			return false
		}
	}
	return len(errs) > 0
}

// InvalidSpecError lists everything that is wrong with a spec, each with the path of its field. It is [ErrInvalidSpec].
type InvalidSpecError struct {
	Faults field.ErrorList
}

func (e *InvalidSpecError) Error() string {
	texts := make([]string, len(e.Faults))
	for i, fault := range e.Faults {
		texts[i] = fault.Error()
	}
	return fmt.Sprintf("%v: %s", ErrInvalidSpec, strings.Join(texts, "; "))
}

func (e *InvalidSpecError) Unwrap() error { return ErrInvalidSpec }

// VolumeError is a failure about one volume. Err wraps one of the classes above.
type VolumeError struct {
	Volume string // name in the spec
	Device string // path of the device as the spec asks for it, where there is one
	Place  string // the mount point or path that is in the way, where there is one
	Err    error
}

func (e *VolumeError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "volume %q", e.Volume)
	if e.Device != "" {
		fmt.Fprintf(&b, ", device %s", e.Device)
	}
	fmt.Fprintf(&b, ": %v", e.Err)
	return b.String()
}

func (e *VolumeError) Unwrap() error { return e.Err }

// PrepareError is what [Env.PrepareVolumesAndGetBindings] fails with once it has looked at the host: everything that
// went wrong, and what became of the mounts that the call had made by then.
type PrepareError struct {
	Errs []error
	// Undone are the mount points that this call had mounted and has unmounted again, in that order.
	Undone []string
	// Left are the mount points that this call has mounted and could not unmount; their errors are among Errs.
	Left []string
}

func (e *PrepareError) Error() string {
	var b strings.Builder
	b.WriteString("volumes not prepared: ")
	b.WriteString(joinTexts(e.Errs))
	if len(e.Undone) > 0 {
		fmt.Fprintf(&b, " (unmounted again: %s)", strings.Join(e.Undone, ", "))
	}
	if len(e.Left) > 0 {
		fmt.Fprintf(&b, " (left mounted: %s)", strings.Join(e.Left, ", "))
	}
	return b.String()
}

func (e *PrepareError) Unwrap() []error { return e.Errs }

// Retryable reports whether all parts are.
func (e *PrepareError) Retryable() bool { return allRetryable(e.Errs) }

// UnmountError is what [Env.UnmountExistingVolumes] fails with: one error for each mount that is still there.
type UnmountError struct {
	Errs []error
}

func (e *UnmountError) Error() string   { return "volumes not unmounted: " + joinTexts(e.Errs) }
func (e *UnmountError) Unwrap() []error { return e.Errs }

// Retryable reports whether all parts are.
func (e *UnmountError) Retryable() bool { return allRetryable(e.Errs) }

func joinTexts(errs []error) string {
	texts := make([]string, len(errs))
	for i, err := range errs {
		texts[i] = err.Error()
	}
	return strings.Join(texts, "; ")
}

// CommandError is a program that ended with an exit code that is not success.
type CommandError struct {
	Argv           []string
	ExitCode       int
	Stdout, Stderr string
}

func (e *CommandError) Error() string {
	text := fmt.Sprintf("%s: exit code %d", command.Command{Argv: e.Argv}, e.ExitCode)
	if output := strings.Join(strings.Fields(e.Stderr+" "+e.Stdout), " "); output != "" {
		const most = 512
		if len(output) > most {
			output = strings.ToValidUTF8(output[:most], "") + "..."
		}
		text += ": " + output
	}
	return text
}

// hostError puts the error of a runner into its class.
func hostError(err error) error { return programError(ErrHost, err) }

// programError puts the error of a runner into the class ErrNoProgram or the given one.
func programError(class, err error) error {
	var spawn *command.SpawnError
	if errors.As(err, &spawn) && (errors.Is(err, fs.ErrNotExist) || errors.Is(err, exec.ErrNotFound)) {
		class = ErrNoProgram
	}
	return fmt.Errorf("%w: %w", class, err)
}
