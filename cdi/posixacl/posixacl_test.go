package posixacl

import "testing"

func TestACLAllows(t *testing.T) {
	const owner, group = 10, 20
	mode := func(m uint32) []Entry {
		return []Entry{{UserObj, uint16(m >> 6 & 7), NoID}, {GroupObj, uint16(m >> 3 & 7), NoID}, {Other, uint16(m & 7), NoID}}
	}
	acl := func(mask uint16, more ...Entry) []Entry {
		return append([]Entry{{UserObj, 6, NoID}, {GroupObj, 0, NoID}, {Mask, mask, NoID}, {Other, 0, NoID}}, more...)
	}
	for name, c := range map[string]struct {
		acl    []Entry
		uid    uint32
		groups []uint32
		want   bool
	}{
		"root":                          {mode(0), 0, nil, true},
		"owner":                         {mode(0o400), owner, nil, true},
		"owner shut out":                {mode(0o044), owner, []uint32{group}, false},
		"group":                         {mode(0o040), 11, []uint32{5, group}, true},
		"group shut out":                {mode(0o604), 11, []uint32{group}, false},
		"other":                         {mode(0o604), 11, nil, true},
		"other shut out":                {mode(0o640), 11, []uint32{5}, false},
		"named":                         {acl(4, Entry{User, 4, 11}), 11, nil, true},
		"named, masked":                 {acl(0, Entry{User, 4, 11}), 11, nil, false},
		"another named":                 {acl(4, Entry{User, 4, 11}), 12, nil, false},
		"named group":                   {acl(4, Entry{Group, 4, 30}), 12, []uint32{30}, true},
		"one group of two allows":       {acl(4, Entry{Group, 4, 30}), 12, []uint32{group, 30}, true},
		"named user before named group": {acl(4, Entry{User, 0, 12}, Entry{Group, 4, 30}), 12, []uint32{30}, false},
	} {
		if got := Allows(c.acl, owner, group, c.uid, c.groups, Read); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
