package fake

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// applyPatch changes before into after, which is empty.
func applyPatch(pt types.PatchType, before apiObject, data []byte, after apiObject) error {
	doc, err := json.Marshal(before)
	if err != nil {
		return apierrors.NewInternalError(err)
	}
	switch pt {
	case types.JSONPatchType:
		doc, err = applyJSONPatch(doc, data)
	case types.MergePatchType:
		doc, err = applyMergePatch(doc, data)
	case types.StrategicMergePatchType:
		if doc, err = strategicpatch.StrategicMergePatch(doc, data, after); err != nil {
			err = apierrors.NewBadRequest(err.Error())
		}
	default:
		return apierrors.NewGenericServerResponse(http.StatusUnsupportedMediaType, "patch", schema.GroupResource{}, before.GetName(), "fake: no patches of type "+string(pt), 0, false)
	}
	if err != nil {
		return err
	}
	d := json.NewDecoder(bytes.NewReader(doc))
	d.DisallowUnknownFields()
	if err := d.Decode(after); err != nil {
		return unprocessable(err)
	}
	return nil
}

// unprocessable is 422, which is also what the real server makes of a failed test.
func unprocessable(err error) error {
	return apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", schema.GroupResource{}, "", err.Error(), 0, false)
}

func applyMergePatch(doc, data []byte) ([]byte, error) {
	var target, change any
	if err := json.Unmarshal(data, &change); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if err := json.Unmarshal(doc, &target); err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	return json.Marshal(merge(target, change))
}

// merge is the algorithm of RFC 7386.
func merge(target, change any) any {
	members, ok := change.(map[string]any)
	if !ok {
		return change
	}
	out, ok := target.(map[string]any)
	if !ok {
		out = map[string]any{}
	}
	for name, value := range members {
		if value == nil {
			delete(out, name)
		} else {
			out[name] = merge(out[name], value)
		}
	}
	return out
}

// jsonOperation is one of RFC 6902.
type jsonOperation struct {
	Op    string          `json:"op"`
	Path  *string         `json:"path"`
	From  string          `json:"from"`
	Value json.RawMessage `json:"value"`
}

func applyJSONPatch(doc, data []byte) ([]byte, error) {
	var operations []jsonOperation
	if err := json.Unmarshal(data, &operations); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	var root any
	if err := json.Unmarshal(doc, &root); err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	for i, o := range operations {
		var err error
		if root, err = o.apply(root); err != nil {
			return nil, unprocessable(fmt.Errorf("operation %d, %s: %w", i, o.Op, err))
		}
	}
	return json.Marshal(root)
}

func (o jsonOperation) apply(root any) (any, error) {
	if o.Path == nil {
		return nil, errors.New("path is missing")
	}
	path, err := parsePointer(*o.Path)
	if err != nil {
		return nil, err
	}
	var value any
	switch o.Op {
	case "add", "replace", "test":
		if o.Value == nil {
			return nil, errors.New("value is missing")
		}
		if err := json.Unmarshal(o.Value, &value); err != nil {
			return nil, err
		}
	case "move", "copy":
		from, err := parsePointer(o.From)
		if err != nil {
			return nil, err
		}
		if value, err = find(root, from); err != nil {
			return nil, err
		}
		if o.Op == "move" {
			if root, err = edit(root, from, removeMember); err != nil {
				return nil, err
			}
		}
	}
	switch o.Op {
	case "test":
		have, err := find(root, path)
		if err != nil && value != nil {
			return nil, fmt.Errorf("testing path %s: %w", *o.Path, err)
		}
		if !reflect.DeepEqual(have, value) {
			return nil, fmt.Errorf("testing value %s failed", *o.Path)
		}
		return root, nil
	case "remove":
		return edit(root, path, removeMember)
	case "replace":
		if _, err := find(root, path); err != nil {
			return nil, err
		}
		return edit(root, path, func(in any, name string) (any, error) { return setMember(in, name, value, true) })
	case "add", "move", "copy":
		return edit(root, path, func(in any, name string) (any, error) { return setMember(in, name, value, false) })
	}
	return nil, errors.New("unknown operation")
}

// parsePointer reads a JSON pointer (RFC 6901).
func parsePointer(s string) ([]string, error) {
	if s == "" {
		return nil, nil
	}
	if s[0] != '/' {
		return nil, fmt.Errorf("path %q does not begin with a slash", s)
	}
	parts := strings.Split(s[1:], "/")
	for i, p := range parts {
		parts[i] = strings.ReplaceAll(strings.ReplaceAll(p, "~1", "/"), "~0", "~")
	}
	return parts, nil
}

func find(in any, path []string) (any, error) {
	for _, name := range path {
		switch holder := in.(type) {
		case map[string]any:
			value, ok := holder[name]
			if !ok {
				return nil, fmt.Errorf("there is no %q", name)
			}
			in = value
		case []any:
			i, err := index(name, len(holder)-1)
			if err != nil {
				return nil, err
			}
			in = holder[i]
		default:
			return nil, fmt.Errorf("there is nothing to look for %q in", name)
		}
	}
	return in, nil
}

// edit changes the last part of the path where it is held, and returns the whole with that change.
func edit(in any, path []string, change func(holder any, name string) (any, error)) (any, error) {
	if len(path) == 0 {
		return nil, errors.New("fake: the whole document cannot be changed")
	}
	if len(path) == 1 {
		return change(in, path[0])
	}
	child, err := find(in, path[:1])
	if err != nil {
		return nil, err
	}
	if child, err = edit(child, path[1:], change); err != nil {
		return nil, err
	}
	return setMember(in, path[0], child, true)
}

func setMember(holder any, name string, value any, replace bool) (any, error) {
	switch h := holder.(type) {
	case map[string]any:
		h[name] = value
		return h, nil
	case []any:
		if name == "-" && !replace {
			return append(h, value), nil
		}
		most := len(h)
		if replace {
			most--
		}
		i, err := index(name, most)
		if err != nil {
			return nil, err
		}
		if replace {
			h[i] = value
			return h, nil
		}
		return slices.Insert(h, i, value), nil
	}
	return nil, fmt.Errorf("there is nothing to put %q in", name)
}

func removeMember(holder any, name string) (any, error) {
	switch h := holder.(type) {
	case map[string]any:
		if _, ok := h[name]; !ok {
			return nil, fmt.Errorf("there is no %q to remove", name)
		}
		delete(h, name)
		return h, nil
	case []any:
		i, err := index(name, len(h)-1)
		if err != nil {
			return nil, err
		}
		return slices.Delete(h, i, i+1), nil
	}
	return nil, fmt.Errorf("there is nothing to remove %q from", name)
}

func index(name string, most int) (int, error) {
	i, err := strconv.Atoi(name)
	if err != nil || i < 0 || i > most || name != strconv.Itoa(i) {
		return 0, fmt.Errorf("index %q is out of bounds", name)
	}
	return i, nil
}
