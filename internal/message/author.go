// SPDX-License-Identifier: Apache-2.0

package message

import (
	"bytes"
	"slices"
	"strings"

	"github.com/mailstead/mailstead/internal/address"
)

// MaxAuthors is the number of addresses in a From field up to which its authors are clear.
const MaxAuthors = 50

// maxFromValue is the length, in bytes, up to which the value of a From field is parsed.
const maxFromValue = 16 << 10

// AuthorProblem is the code, stored and shown, of the reason why a message's author is unclear; ""
// if it is clear.
type AuthorProblem string

// Author problems, worst first.
const (
	NoFrom      AuthorProblem = "no_from"      // no From field
	ManyFrom    AuthorProblem = "many_from"    // several From fields
	UnclearFrom AuthorProblem = "unclear_from" // mail readers would parse it differently, or it is a group
	NoAuthor    AuthorProblem = "no_author"    // no address with a full domain name
	ManyDomains AuthorProblem = "many_domains" // authors in different domains
	OtherName   AuthorProblem = "other_name"   // a name or comment shows another address than its own
)

// authorProblems explains each problem in a sentence without a full stop.
var authorProblems = map[AuthorProblem]string{
	NoFrom:      "the message has no From field",
	ManyFrom:    "the message has more than one From field",
	UnclearFrom: "mail readers may read its From field differently",
	NoAuthor:    "its From field has no address with a full domain name",
	ManyDomains: "its From field has authors of different domains",
	OtherName:   "the name in its From field shows another address",
}

// String explains the problem in a sentence without a full stop.
func (d AuthorProblem) String() string { return authorProblems[d] }

// Authors are the addresses in From, with any problem.
type Authors struct {
	// List has the addresses that every mail reader shows. With a Problem, it has all addresses
	// that any reader may take for the author; with OtherName, those that all show.
	List    []Address
	Problem AuthorProblem
}

// Authors parses From strictly: an address counts only if all mail readers agree on it. A form that
// some of them parse differently is an AuthorProblem, even if Addresses can parse it.
func (h Header) Authors() Authors {
	var values [][]byte
	for f := range h.Fields() {
		if f.Is("From") {
			values = append(values, f.Value)
		}
	}
	return ParseAuthors(values)
}

// IsFromMailSystem reports whether the only address that any reader shows in From is that of a mail
// server without a domain: MAILER-DAEMON, postmaster or <>, perhaps with a name. Some delivery
// reports have that.
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

// ParseAuthors is Header.Authors for the values of the From fields, or of another field with
// authors, such as Sender.
func ParseAuthors(values [][]byte) Authors {
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

// AuthorProblem returns the problem of a message with this address as its only author.
func (a Address) AuthorProblem() AuthorProblem {
	var w fieldWriter
	w.begin("From")
	w.addresses([]Address{a})
	w.end()
	return Header(w.dst).Authors().Problem
}
