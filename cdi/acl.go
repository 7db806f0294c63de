package cdi

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// aclXattr holds a file's POSIX access ACL: a version word, then 8 bytes per entry (tag, permissions, id), all little
// endian, in the order of the tags. See linux/posix_acl_xattr.h.
const aclXattr = "system.posix_acl_access"

const (
	aclVersion  = 2
	aclUserObj  = 0x01
	aclUser     = 0x02
	aclGroupObj = 0x04
	aclGroup    = 0x08
	aclMask     = 0x10
	aclOther    = 0x20

	aclNoID = 0xffffffff

	permRead  = 4
	permWrite = 2
	permExec  = 1
)

type aclEntry struct {
	tag, perm uint16
	id        uint32
}

// readerACL gives the owner of the file rw, one other user r, and everybody else nothing.
func readerACL(uid uint32) []byte {
	return encodeACL([]aclEntry{
		{aclUserObj, permRead | permWrite, aclNoID},
		{aclUser, permRead, uid},
		{aclGroupObj, 0, aclNoID},
		{aclMask, permRead, aclNoID},
		{aclOther, 0, aclNoID},
	})
}

func encodeACL(entries []aclEntry) []byte {
	b := binary.LittleEndian.AppendUint32(nil, aclVersion)
	for _, e := range entries {
		b = binary.LittleEndian.AppendUint16(b, e.tag)
		b = binary.LittleEndian.AppendUint16(b, e.perm)
		b = binary.LittleEndian.AppendUint32(b, e.id)
	}
	return b
}

func parseACL(b []byte) ([]aclEntry, error) {
	if len(b) < 4 || len(b)%8 != 4 || binary.LittleEndian.Uint32(b) != aclVersion {
		return nil, fmt.Errorf("an ACL of %d bytes that is not of version %d", len(b), aclVersion)
	}
	var entries []aclEntry
	for b = b[4:]; len(b) > 0; b = b[8:] {
		entries = append(entries, aclEntry{
			binary.LittleEndian.Uint16(b), binary.LittleEndian.Uint16(b[2:]), binary.LittleEndian.Uint32(b[4:]),
		})
	}
	return entries, nil
}

// readACL is the ACL of a path as entries; one made of the mode bits where it has none.
func readACL(path string, mode uint32) ([]aclEntry, error) {
	buf := make([]byte, 64<<10)
	n, err := unix.Getxattr(path, aclXattr, buf)
	switch {
	case errors.Is(err, unix.ENODATA), errors.Is(err, unix.EOPNOTSUPP):
		return []aclEntry{
			{aclUserObj, uint16(mode >> 6 & 7), aclNoID},
			{aclGroupObj, uint16(mode >> 3 & 7), aclNoID},
			{aclOther, uint16(mode & 7), aclNoID},
		}, nil
	case err != nil:
		return nil, fmt.Errorf("read the ACL of %s: %w", path, err)
	}
	return parseACL(buf[:n])
}

// aclAllows is the access check of acl(5).
func aclAllows(entries []aclEntry, owner, group, uid uint32, groups []uint32, want uint16) bool {
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
	var named *aclEntry
	var groupPerms []uint16
	for i, e := range entries {
		switch {
		case e.tag == aclMask:
			mask = e.perm
		case e.tag == aclOther:
			other = e.perm
		case e.tag == aclUserObj:
			userObj = e.perm
		case e.tag == aclUser && e.id == uid:
			named = &entries[i]
		case e.tag == aclGroupObj && inGroup(group), e.tag == aclGroup && inGroup(e.id):
			groupPerms = append(groupPerms, e.perm)
		}
	}
	switch {
	case uid == owner:
		return userObj&want == want
	case named != nil:
		return named.perm&mask&want == want
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
