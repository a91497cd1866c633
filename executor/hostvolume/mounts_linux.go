package hostvolume

import (
	"io"

	"github.com/moby/sys/mountinfo"
)

func readMountInfo(r io.Reader) ([]*mountinfo.Info, error) {
	return mountinfo.GetMountsFromReader(r, nil)
}
