package lifecycle

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/stateofworld/stateofworld/lvm"
)

// What the agent writes on the logical volumes it makes. Together with the claim these tags say all that is needed to go on after
// a crash at any point; nothing is kept elsewhere.
const (
	tagPrefix = "sow."
	// ownerTag and the UID of the claim are on the volume from its first moment on.
	ownerTag = tagPrefix + "owner="
	// claimTag and namespace/name tell where to look whether the owner is still there.
	claimTag = tagPrefix + "claim="
	// lvTag and vg/lv are the name that the volume was made under. A copy of the group, or a volume that somebody has renamed to keep it, is
	// nothing that the agent would clean away on its own.
	lvTag = tagPrefix + "lv="
	// readyTag is on the volume before "created" is written. A volume without it was never announced, so nobody can be using it.
	readyTag = tagPrefix + "ready"
)

// ownership is what the tags of a logical volume say.
type ownership struct {
	UID   types.UID // empty: not made by an agent
	Claim types.NamespacedName
	LV    string
	Ready bool
}

func ownershipOf(lv lvm.LogicalVolume) (o ownership) {
	for _, tag := range lv.Tags {
		switch {
		case tag == readyTag:
			o.Ready = true
		case strings.HasPrefix(tag, ownerTag):
			o.UID = types.UID(strings.TrimPrefix(tag, ownerTag))
		case strings.HasPrefix(tag, claimTag):
			o.Claim.Namespace, o.Claim.Name, _ = strings.Cut(strings.TrimPrefix(tag, claimTag), "/")
		case strings.HasPrefix(tag, lvTag):
			o.LV = strings.TrimPrefix(tag, lvTag)
		}
	}
	return o
}

// intact reports whether the volume is where an agent made it, and all is known that is needed to ask for its owner.
func (o ownership) intact(name lvm.Name) bool {
	return o.UID != "" && o.Claim.Namespace != "" && o.Claim.Name != "" && o.LV == name.String()
}

func ownerTags(uid types.UID, claim types.NamespacedName, name lvm.Name) []string {
	return []string{ownerTag + string(uid), claimTag + claim.String(), lvTag + name.String()}
}

// validOwner reports whether the UID and the name can be written on a logical volume and found there again: all that an API server
// hands out can.
func validOwner(uid types.UID, claim types.NamespacedName, name lvm.Name) bool {
	return uid != "" && !slices.ContainsFunc(ownerTags(uid, claim, name), func(tag string) bool { return lvm.ValidateTag(tag) != nil })
}
