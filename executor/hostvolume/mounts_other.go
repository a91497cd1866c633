//go:build !linux

package hostvolume

import (
	"errors"
	"io"

	"github.com/moby/sys/mountinfo"
)

// readMountInfo is not there: the library reads mountinfo on Linux only.
func readMountInfo(io.Reader) ([]*mountinfo.Info, error) { return nil, errors.ErrUnsupported }
