package command

import (
	"io/fs"
	"syscall"
)

func hostInfo(info fs.FileInfo, err error) (FileInfo, error) {
	if err != nil {
		return FileInfo{}, err
	}
	out := FileInfo{Mode: info.Mode(), Size: info.Size()}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		out.Dev = uint64(st.Dev)
		if info.Mode()&fs.ModeDevice != 0 {
			out.Major, out.Minor = deviceNumbers(uint64(st.Rdev))
		}
	}
	return out, nil
}

// deviceNumbers splits a device number as glibc's major() and minor() do.
func deviceNumbers(dev uint64) (major, minor uint32) {
	return uint32(dev>>8&0xfff | dev>>32&0xfffff000), uint32(dev&0xff | dev>>12&0xffffff00)
}
