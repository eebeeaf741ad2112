// SPDX-License-Identifier: Apache-2.0

package wire

import "strconv"

// Code is a response code without its brackets (RFC 9051 §7.1). The empty one
// is none.
type Code string

// The codes without arguments.
const (
	CodeAlreadyExists        Code = "ALREADYEXISTS"
	CodeAuthenticationFailed Code = "AUTHENTICATIONFAILED"
	CodeAuthorizationFailed  Code = "AUTHORIZATIONFAILED"
	CodeCannot               Code = "CANNOT"
	CodeClosed               Code = "CLOSED"
	CodeCompressionActive    Code = "COMPRESSIONACTIVE"
	CodeExpungeIssued        Code = "EXPUNGEISSUED"
	CodeHasChildren          Code = "HASCHILDREN"
	CodeLimit                Code = "LIMIT"
	CodeNonExistent          Code = "NONEXISTENT"
	CodeNoPerm               Code = "NOPERM"
	CodeNotSaved             Code = "NOTSAVED"
	CodeOverQuota            Code = "OVERQUOTA"
	CodePrivacyRequired      Code = "PRIVACYREQUIRED"
	CodeReadOnly             Code = "READ-ONLY"
	CodeReadWrite            Code = "READ-WRITE"
	CodeServerBug            Code = "SERVERBUG"
	CodeTooBig               Code = "TOOBIG"
	CodeTryCreate            Code = "TRYCREATE"
	CodeUnavailable          Code = "UNAVAILABLE"
	CodeUnknownCTE           Code = "UNKNOWN-CTE"
	CodeUseAttr              Code = "USEATTR"
)

// CodeUIDNext is [UIDNEXT n].
func CodeUIDNext(uid uint32) Code { return uintCode("UIDNEXT ", uint64(uid)) }

// CodeUIDValidity is [UIDVALIDITY n].
func CodeUIDValidity(n uint32) Code { return uintCode("UIDVALIDITY ", uint64(n)) }

// CodeUnseen is [UNSEEN n], the first unseen message (RFC 3501 §7.1).
func CodeUnseen(seq uint32) Code { return uintCode("UNSEEN ", uint64(seq)) }

// CodeHighestModSeq is [HIGHESTMODSEQ n] (RFC 7162).
func CodeHighestModSeq(n uint64) Code { return uintCode("HIGHESTMODSEQ ", n) }

func uintCode(name string, n uint64) Code {
	return Code(strconv.AppendUint(append(make([]byte, 0, 40), name...), n, 10))
}

// CodeModified is [MODIFIED set]: what a conditional STORE did not change (RFC
// 7162 §3.1.3).
func CodeModified(s Set) Code { return Code(appendSet([]byte("MODIFIED "), s)) }

// CodeAppendUID is [APPENDUID validity uids] (RFC 4315).
func CodeAppendUID(validity uint32, uids Set) Code {
	b := []byte(uintCode("APPENDUID ", uint64(validity)))
	return Code(appendSet(append(b, ' '), uids))
}

// CodeCopyUID is [COPYUID validity from to] (RFC 4315): from's UIDs in rising
// order became to's in rising order.
func CodeCopyUID(validity uint32, from, to Set) Code {
	b := []byte(uintCode("COPYUID ", uint64(validity)))
	b = appendSet(append(b, ' '), from)
	return Code(appendSet(append(b, ' '), to))
}

// CodePermanentFlags is [PERMANENTFLAGS (…)], with \* if new keywords can be made.
func CodePermanentFlags(f Flags, more bool) Code {
	if more {
		f.Keywords = append(f.Keywords[:len(f.Keywords):len(f.Keywords)], `\*`)
	}
	return Code(appendFlags([]byte("PERMANENTFLAGS "), f))
}

// CodeCapability is [CAPABILITY …].
func CodeCapability(names ...string) Code {
	b := []byte("CAPABILITY")
	for _, n := range names {
		b = append(append(b, ' '), n...)
	}
	return Code(b)
}

// CodeBadCharset is [BADCHARSET (…)], with the charsets that are known.
func CodeBadCharset(known ...string) Code {
	b := []byte("BADCHARSET (")
	for i, n := range known {
		if i > 0 {
			b = append(b, ' ')
		}
		b = append(b, n...)
	}
	return Code(append(b, ')'))
}

// CodeMailboxID is [MAILBOXID (id)] (RFC 8474).
func CodeMailboxID(id string) Code { return Code("MAILBOXID (" + id + ")") }
