// SPDX-License-Identifier: Apache-2.0

package message

import (
	"bytes"
	"slices"
	"strings"

	"github.com/mailstead/mailstead/internal/address"
)

// MaxAuthors is how many addresses a From field may have to be told apart.
const MaxAuthors = 50

// maxFromValue bounds the From field's value that is read, in bytes.
const maxFromValue = 16 << 10

// AuthorProblem is the reason why the author of a message can't be told: a code that
// is stored and shown; "" if there is none.
type AuthorProblem string

// The doubts, worst first.
const (
	NoFrom      AuthorProblem = "no_from"      // there is no From field
	ManyFrom    AuthorProblem = "many_from"    // there are several
	UnclearFrom AuthorProblem = "unclear_from" // mail readers differ on what it says, or it is a group
	NoAuthor    AuthorProblem = "no_author"    // it has no address with a full domain name
	ManyDomains AuthorProblem = "many_domains" // its authors are of different domains
	OtherName   AuthorProblem = "other_name"   // a name or comment shows another address than the one beside it
)

// AuthorProblems lists all doubts.
func AuthorProblems() []AuthorProblem {
	return []AuthorProblem{NoFrom, ManyFrom, UnclearFrom, NoAuthor, ManyDomains, OtherName}
}

// String explains the doubt in a sentence without a full stop.
func (d AuthorProblem) String() string {
	switch d {
	case NoFrom:
		return "the message has no From field"
	case ManyFrom:
		return "the message has more than one From field"
	case UnclearFrom:
		return "mail readers may read its From field differently"
	case NoAuthor:
		return "its From field has no address with a full domain name"
	case ManyDomains:
		return "its From field has authors of different domains"
	case OtherName:
		return "the name in its From field shows another address"
	}
	return ""
}

// Authors are the addresses that a message claims to be from.
type Authors struct {
	// List is what every mail reader sees. With a AuthorProblem it is whom some reader
	// may take for the author; of OtherName, those whom all see.
	List    []Address
	Problem AuthorProblem
}

// Authors reads From strictly: an address counts only if mail readers agree on it.
// A form that some of them read differently is a AuthorProblem, however well Addresses
// reads it.
func (h Header) Authors() Authors {
	var values [][]byte
	for f := range h.Fields() {
		if f.Is("From") {
			values = append(values, f.Value)
		}
	}
	return ReadAuthors(values)
}

// IsFromMailSystem reports whether From shows no address to any reader but that of a
// mail server without a domain, as some reports have it: MAILER-DAEMON, postmaster or
// <>. There may be a name beside it.
func (h Header) IsFromMailSystem() bool {
	var values [][]byte
	for _, f := range h.All("From") {
		values = append(values, f.Value)
	}
	return len(values) == 1 && len(values[0]) <= maxFromValue && !slices.ContainsFunc(candidateAuthors(values), func(a Address) bool {
		local := strings.ToLower(a.Local)
		return a.Domain != "" || local != "" && local != "mailer-daemon" && local != "postmaster"
	})
}

// ReadAuthors is Header.Authors for the values of the From fields, or those of
// another field that names authors, such as Sender.
func ReadAuthors(values [][]byte) Authors {
	switch len(values) {
	case 0:
		return Authors{Problem: NoFrom}
	case 1:
	default:
		return Authors{candidateAuthors(values), ManyFrom}
	}
	list, other, ok := parseFrom(values[0])
	if !ok && bytes.IndexByte(values[0], '@') < 0 {
		return Authors{Problem: NoAuthor}
	}
	if !ok {
		return Authors{candidateAuthors(values), UnclearFrom}
	}
	several, first := false, ""
	for i, one := range list {
		domain, err := address.ParseMailDomain(one.Domain)
		if err != nil {
			return Authors{candidateAuthors(values), NoAuthor}
		}
		if i == 0 {
			first = domain
		}
		several = several || domain != first
	}
	switch {
	case other && !isSimpleFrom(values[0]):
		return Authors{candidateAuthors(values), UnclearFrom}
	case several:
		return Authors{list, ManyDomains}
	case other:
		return Authors{list, OtherName}
	}
	return Authors{List: list}
}

// AuthorProblem is the doubt that a message from this author alone leaves.
func (a Address) AuthorProblem() AuthorProblem {
	var w fieldWriter
	w.begin("From")
	w.addresses([]Address{a})
	w.end()
	return Header(w.dst).Authors().Problem
}
