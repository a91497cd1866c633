package hostvolume

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/stateofworld/stateofworld/executor/command"
)

// contents is what a low-level probe has found on a device. Both empty means that it has found nothing, which is also
// what it says about many devices that hold data: a damaged filesystem, a device that cannot be read.
type contents struct {
	fsType         string
	partitionTable string
}

func (c contents) nothing() bool { return c == contents{} }

// probe runs blkid -p, which reads the device itself and not the database of udev.
func (e *Env) probe(ctx context.Context, device string) (contents, error) {
	argv := []string{"blkid", "-p", "-s", "TYPE", "-s", "PTTYPE", "-o", "export", device}
	result, err := e.Runner.Run(ctx, command.Command{Argv: argv})
	if err != nil {
		return contents{}, hostError(err)
	}
	found, err := parseProbe(result)
	if err != nil {
		return contents{}, fmt.Errorf("%w: %w: %w", ErrAmbiguous, err, commandError(argv, result))
	}
	return found, nil
}

// parseProbe reads the answer of blkid -p -o export. Only two answers are understood: exit 0 that names something, and
// exit 2 without output.
func parseProbe(result command.Result) (contents, error) {
	output := bytes.TrimSpace(result.Stdout)
	switch {
	case result.ExitCode == 2 && len(output) == 0:
		return contents{}, nil
	case result.ExitCode == 8:
		return contents{}, errors.New("several kinds of content were found")
	case result.ExitCode != 0:
		return contents{}, errors.New("the probe failed")
	}
	values := map[string]string{}
	for line := range bytes.Lines(output) {
		text := strings.TrimRight(string(line), "\r\n")
		key, value, ok := strings.Cut(text, "=")
		if !ok || key == "" || value == "" {
			return contents{}, fmt.Errorf("unexpected line %q", text)
		}
		if before, ok := values[key]; ok && before != value {
			return contents{}, fmt.Errorf("%s is both %q and %q", key, before, value)
		}
		values[key] = value
	}
	found := contents{fsType: values["TYPE"], partitionTable: values["PTTYPE"]}
	if found.nothing() {
		return contents{}, errors.New("the probe succeeded without naming anything")
	}
	return found, nil
}

// geometry asks the kernel for the size of a device in bytes and whether it is write-protected.
func (e *Env) geometry(ctx context.Context, device string) (size int64, writeProtected bool, err error) {
	argv := []string{"blockdev", "--getsize64", "--getro", device}
	result, err := e.Runner.Run(ctx, command.Command{Argv: argv})
	if err != nil {
		return 0, false, hostError(err)
	}
	if result.ExitCode != 0 {
		return 0, false, fmt.Errorf("%w: %w", ErrDeviceUnreadable, commandError(argv, result))
	}
	size, writeProtected, err = parseGeometry(string(result.Stdout))
	if err != nil {
		return 0, false, fmt.Errorf("%w: %w: %w", ErrDeviceUnreadable, err, commandError(argv, result))
	}
	return size, writeProtected, nil
}

func parseGeometry(output string) (size int64, writeProtected bool, err error) {
	fields := strings.Fields(output)
	if len(fields) != 2 || fields[1] != "0" && fields[1] != "1" {
		return 0, false, errors.New("unexpected output")
	}
	size, err = strconv.ParseInt(fields[0], 10, 64)
	if err != nil || size <= 0 {
		return 0, false, fmt.Errorf("%q is no size", fields[0])
	}
	return size, fields[1] == "1", nil
}

// extent is a part of a device, in bytes.
type extent struct{ offset, length int64 }

const (
	wholeSize    = 8 << 20
	edgeSample   = 1 << 20
	spreadSample = 64 << 10
	spreadCount  = 64
)

// samples are the parts of a device that have to be zero before it counts as blank: the first and the last MiB, where
// boot sectors, superblocks, labels of volume managers, headers of encryption and both copies of a partition table are;
// the places of ext's first backup superblocks for its three block sizes; and parts spread evenly over the rest, which
// are also where xfs starts its allocation groups. A small device is read whole.
func samples(size int64) []extent {
	var out []extent
	add := func(offset, length int64) {
		if length = min(length, size-offset); length > 0 {
			out = append(out, extent{offset, length})
		}
	}
	if size <= wholeSize {
		for offset := int64(0); offset < size; offset += edgeSample {
			add(offset, edgeSample)
		}
		return out
	}
	add(0, edgeSample)
	add(size-edgeSample, edgeSample)
	for _, backup := range []int64{8193 << 10, 16384 << 11, 32768 << 12} {
		add(backup, spreadSample)
	}
	for i := int64(1); i < spreadCount; i++ {
		add(size/spreadCount*i&^4095, spreadSample)
	}
	return out
}

// firstData reads the samples of a device and returns the offset of the first byte that is not zero, or -1.
func (e *Env) firstData(ctx context.Context, device string, size int64) (int64, error) {
	for _, part := range samples(size) {
		data, err := e.Runner.ReadAt(ctx, device, part.offset, part.length)
		if err != nil {
			return 0, fmt.Errorf("%w at offset %d: %w", ErrDeviceUnreadable, part.offset, err)
		}
		if int64(len(data)) != part.length {
			return 0, fmt.Errorf("%w at offset %d: %d of %d bytes", ErrDeviceUnreadable, part.offset, len(data), part.length)
		}
		if i := firstNonZero(data); i >= 0 {
			return part.offset + int64(i), nil
		}
	}
	return -1, nil
}

func firstNonZero(data []byte) int {
	var zeros [4096]byte
	for start := 0; start < len(data); start += len(zeros) {
		block := data[start:min(start+len(zeros), len(data))]
		if bytes.Equal(block, zeros[:len(block)]) { // much faster than byte by byte
			continue
		}
		for i, b := range block {
			if b != 0 {
				return start + i
			}
		}
	}
	return -1
}

func commandError(argv []string, result command.Result) error {
	return &CommandError{Argv: argv, ExitCode: result.ExitCode, Stdout: string(result.Stdout), Stderr: string(result.Stderr)}
}
