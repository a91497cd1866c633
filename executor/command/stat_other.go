//go:build !linux

package command

import "io/fs"

func hostInfo(info fs.FileInfo, err error) (FileInfo, error) {
	if err != nil {
		return FileInfo{}, err
	}
	return FileInfo{Mode: info.Mode(), Size: info.Size()}, nil
}
