// Package posixacl reads, writes and judges POSIX access ACLs through the extended attribute that holds them. It opens
// no file for its contents, and decides nothing about who should have access.
package posixacl

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Xattr holds a file's POSIX access ACL: a version word, then 8 bytes per entry (tag, permissions, id), all little
// endian, in the order of the tags. See linux/posix_acl_xattr.h.
const Xattr = "system.posix_acl_access"

const version = 2

// The tags of entries, in the order in which an ACL has them.
const (
	UserObj  = 0x01
	User     = 0x02
	GroupObj = 0x04
	Group    = 0x08
	Mask     = 0x10
	Other    = 0x20
)

// NoID is the id of an entry that names nobody.
const NoID = 0xffffffff

// The permissions of an entry.
const (
	Read  = 4
	Write = 2
	Exec  = 1
)

// Entry is one line of an ACL.
type Entry struct {
	Tag, Perm uint16
	ID        uint32
}

// Only gives the owner of the file rw, the users named perm, and everybody else nothing; owning groups are everybody
// else, since labs share primary groups. The users are to be sorted, each once.
func Only(perm uint16, uids ...uint32) []byte {
	entries := []Entry{{UserObj, Read | Write, NoID}}
	for _, uid := range uids {
		entries = append(entries, Entry{User, perm, uid})
	}
	return Encode(append(entries, Entry{GroupObj, 0, NoID}, Entry{Mask, perm, NoID}, Entry{Other, 0, NoID}))
}

// Encode is the value of the attribute.
func Encode(entries []Entry) []byte {
	b := binary.LittleEndian.AppendUint32(nil, version)
	for _, e := range entries {
		b = binary.LittleEndian.AppendUint16(b, e.Tag)
		b = binary.LittleEndian.AppendUint16(b, e.Perm)
		b = binary.LittleEndian.AppendUint32(b, e.ID)
	}
	return b
}

// Parse reads the value of the attribute.
func Parse(b []byte) ([]Entry, error) {
	if len(b) < 4 || len(b)%8 != 4 || binary.LittleEndian.Uint32(b) != version {
		return nil, fmt.Errorf("an ACL of %d bytes that is not of version %d", len(b), version)
	}
	var entries []Entry
	for b = b[4:]; len(b) > 0; b = b[8:] {
		entries = append(entries, Entry{
			binary.LittleEndian.Uint16(b), binary.LittleEndian.Uint16(b[2:]), binary.LittleEndian.Uint32(b[4:]),
		})
	}
	return entries, nil
}

// Of is the ACL of a path as entries; one made of the mode bits where it has none.
func Of(path string, mode uint32) ([]Entry, error) {
	buf := make([]byte, 64<<10)
	n, err := unix.Getxattr(path, Xattr, buf)
	switch {
	case errors.Is(err, unix.ENODATA), errors.Is(err, unix.EOPNOTSUPP):
		return []Entry{
			{UserObj, uint16(mode >> 6 & 7), NoID},
			{GroupObj, uint16(mode >> 3 & 7), NoID},
			{Other, uint16(mode & 7), NoID},
		}, nil
	case err != nil:
		return nil, fmt.Errorf("read the ACL of %s: %w", path, err)
	}
	return Parse(buf[:n])
}

// Allows is the access check of acl(5).
func Allows(entries []Entry, owner, group, uid uint32, groups []uint32, want uint16) bool {
	if uid == 0 {
		return true
	}
	inGroup := func(g uint32) bool {
		for _, have := range groups {
			if have == g {
				return true
			}
		}
		return false
	}
	mask, other := uint16(7), uint16(0)
	var userObj uint16
	var named *Entry
	var groupPerms []uint16
	for i, e := range entries {
		switch {
		case e.Tag == Mask:
			mask = e.Perm
		case e.Tag == Other:
			other = e.Perm
		case e.Tag == UserObj:
			userObj = e.Perm
		case e.Tag == User && e.ID == uid:
			named = &entries[i]
		case e.Tag == GroupObj && inGroup(group), e.Tag == Group && inGroup(e.ID):
			groupPerms = append(groupPerms, e.Perm)
		}
	}
	switch {
	case uid == owner:
		return userObj&want == want
	case named != nil:
		return named.Perm&mask&want == want
	case len(groupPerms) > 0:
		for _, p := range groupPerms {
			if p&mask&want == want {
				return true
			}
		}
		return false
	}
	return other&want == want
}
