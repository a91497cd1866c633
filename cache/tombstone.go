package cache

import "reflect"

// OpenTombstone returns what is inside of what an informer hands to OnDelete for an object whose deletion it has not seen: the last known
// state of the object, which may be nil, and its key ("namespace/name", or "name"). False means that obj is no tombstone.
//
// A tombstone is client-go's DeletedFinalStateUnknown. It is recognised by its fields, a string Key and an Obj of any type, as this module does
// not depend on client-go.
func OpenTombstone(obj any) (inside any, key string, ok bool) {
	v := reflect.ValueOf(obj)
	if v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	if v.Kind() != reflect.Struct {
		return nil, "", false
	}
	k, o := v.FieldByName("Key"), v.FieldByName("Obj")
	if k.Kind() != reflect.String || o.Kind() != reflect.Interface {
		return nil, "", false
	}
	return o.Interface(), k.String(), true
}
