// SPDX-License-Identifier: Apache-2.0

package interop

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/emersion/go-imap/v2"
	"github.com/emersion/go-imap/v2/imapclient"

	"github.com/mailstead/mailstead/internal/server/servertest"
)

// Every message is returned byte for byte. A foreign client can parse its structure, each part
// exists with the stated size, and search, sort and thread handle it.
func TestMalformed(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		c := login(t, s, 0, nil)
		all := corpus()
		stock(t, c, "Odd", all)
		for i, x := range all {
			t.Run(x.name, func(t *testing.T) { examine(t, c, imap.UID(i+1), x.text) })
		}
		sift(t, c, all)
	})
}

// stock files the specimens in a new folder: the UID of each is its position.
func stock(t testing.TB, c *imapclient.Client, folder string, all []specimen) {
	t.Helper()
	if err := c.Create(folder, nil).Wait(); err != nil {
		t.Fatal(err)
	}
	for i, x := range all {
		a := c.Append(folder, int64(len(x.text)), nil)
		_, err := a.Write([]byte(x.text))
		if err == nil {
			err = a.Close()
		}
		if err != nil {
			t.Fatalf("%s: %v", x.name, err)
		}
		if done, err := a.Wait(); err != nil || done.UID != imap.UID(i+1) {
			t.Fatalf("%s: %+v, %v", x.name, done, err)
		}
	}
	if _, err := c.Select(folder, nil).Wait(); err != nil {
		t.Fatal(err)
	}
}

// withoutNUL returns a message in a form that a literal allows.
func withoutNUL(text string) string { return strings.ReplaceAll(text, "\x00", "\x80") }

// part is a part in a structure.
type part struct {
	path []int
	*imap.BodyStructureSinglePart
}

// partsOf returns all parts that are not multiparts.
func partsOf(bs imap.BodyStructure, path []int, all []part) []part {
	if multi, ok := bs.(*imap.BodyStructureMultiPart); ok {
		for i, child := range multi.Children {
			all = partsOf(child, append(slices.Clone(path), i+1), numbered(child, all, append(slices.Clone(path), i+1)))
		}
		return all
	}
	single := bs.(*imap.BodyStructureSinglePart)
	if single.MessageRFC822 == nil {
		return all
	}
	inner := single.MessageRFC822.BodyStructure
	if _, ok := inner.(*imap.BodyStructureMultiPart); !ok {
		path = append(slices.Clone(path), 1)
		all = numbered(inner, all, path)
	}
	return partsOf(inner, path, all)
}

func numbered(bs imap.BodyStructure, all []part, path []int) []part {
	if single, ok := bs.(*imap.BodyStructureSinglePart); ok {
		all = append(all, part{path, single})
	}
	return all
}

// examine checks the server's responses about a message.
func examine(t *testing.T, c *imapclient.Client, uid imap.UID, text string) {
	whole, raw := &imap.FetchItemBodySection{Peek: true}, &imap.FetchItemBinarySection{Peek: true}
	m := fetchOne(t, c, uid, &imap.FetchOptions{Envelope: true, RFC822Size: true, BodyStructure: &imap.FetchItemBodyStructure{Extended: true},
		BodySection: []*imap.FetchItemBodySection{whole}, BinarySection: []*imap.FetchItemBinarySection{raw}})
	if m.RFC822Size != int64(len(text)) || string(m.FindBodySection(whole)) != withoutNUL(text) {
		t.Fatalf("it came back otherwise: %d bytes, %.200q", m.RFC822Size, m.FindBodySection(whole))
	}
	if string(m.FindBinarySection(raw)) != text {
		t.Fatal("it came back otherwise with BINARY[]")
	}
	if m.Envelope == nil || m.BodyStructure == nil {
		t.Fatal("it has no envelope or structure")
	}
	header := &imap.FetchItemBodySection{Specifier: imap.PartSpecifierHeader, Peek: true}
	body := &imap.FetchItemBodySection{Specifier: imap.PartSpecifierText, Peek: true}
	m2 := fetchOne(t, c, uid, &imap.FetchOptions{BodySection: []*imap.FetchItemBodySection{header, body}})
	if string(m2.FindBodySection(header))+string(m2.FindBodySection(body)) != withoutNUL(text) {
		t.Error("header and text don't make the message")
	}
	start := numbered(m.BodyStructure, nil, []int{1})
	path := []int{}
	if len(start) > 0 {
		path = []int{1}
	}
	parts := partsOf(m.BodyStructure, path, start)
	if len(parts) > 300 { // the rest is like these
		parts = slices.Concat(parts[:100], parts[len(parts)-100:])
	}
	for group := range slices.Chunk(parts, 15) {
		look(t, c, uid, group)
	}
}

func fetchOne(t testing.TB, c *imapclient.Client, uid imap.UID, o *imap.FetchOptions) *imapclient.FetchMessageBuffer {
	t.Helper()
	all, err := c.Fetch(imap.UIDSetNum(uid), o).Collect()
	if err != nil || len(all) != 1 {
		t.Fatalf("%d answers, %v", len(all), err)
	}
	return all[0]
}

// look fetches parts and compares them with the structure.
func look(t *testing.T, c *imapclient.Client, uid imap.UID, parts []part) {
	t.Helper()
	o := &imap.FetchOptions{}
	at := func(p part, of imap.PartSpecifier) *imap.FetchItemBodySection {
		return &imap.FetchItemBodySection{Part: p.path, Specifier: of, Peek: true}
	}
	for _, p := range parts {
		o.BodySection = append(o.BodySection, at(p, imap.PartSpecifierNone), at(p, imap.PartSpecifierMIME))
		if p.MessageRFC822 != nil {
			o.BodySection = append(o.BodySection, at(p, imap.PartSpecifierHeader), at(p, imap.PartSpecifierText))
		}
	}
	m := fetchOne(t, c, uid, o)
	for _, p := range parts {
		got, mime := m.FindBodySection(at(p, imap.PartSpecifierNone)), m.FindBodySection(at(p, imap.PartSpecifierMIME))
		if got == nil || mime == nil {
			t.Fatalf("part %v: %q %q", p.path, got, mime)
		}
		lines := int64(bytes.Count(got, []byte("\n")))
		switch {
		case int64(p.Size) != int64(len(got)):
			t.Errorf("part %v has %d bytes, not %d", p.path, len(got), p.Size)
		case p.Text != nil && p.Text.NumLines != lines:
			t.Errorf("part %v has %d lines, not %d", p.path, lines, p.Text.NumLines)
		case p.MessageRFC822 == nil:
		case p.MessageRFC822.NumLines != lines:
			t.Errorf("message %v has %d lines, not %d", p.path, lines, p.MessageRFC822.NumLines)
		case string(m.FindBodySection(at(p, imap.PartSpecifierHeader)))+string(m.FindBodySection(at(p, imap.PartSpecifierText))) != string(got):
			t.Errorf("header and text of %v don't make the message", p.path)
		}
		decoded(t, c, uid, p, got)
	}
}

// decoded checks BINARY: the size must match, and unencoded parts must be unchanged.
func decoded(t *testing.T, c *imapclient.Client, uid imap.UID, p part, plain []byte) {
	t.Helper()
	section := &imap.FetchItemBinarySection{Part: p.path, Peek: true}
	all, err := c.Fetch(imap.UIDSetNum(uid), &imap.FetchOptions{BinarySection: []*imap.FetchItemBinarySection{section},
		BinarySectionSize: []*imap.FetchItemBinarySectionSize{{Part: p.path}}}).Collect()
	encoding := strings.ToLower(p.Encoding)
	if err != nil && strings.Contains(err.Error(), "UNKNOWN-CTE") && !slices.Contains([]string{"7bit", "8bit", "binary", "base64", "quoted-printable"}, encoding) {
		return
	}
	if err != nil || len(all) != 1 {
		t.Fatalf("BINARY of %v: %d answers, %v", p.path, len(all), err)
	}
	got := all[0].FindBinarySection(section)
	if n, ok := all[0].FindBinarySectionSize(p.path); !ok || int(n) != len(got) {
		t.Errorf("BINARY of %v has %d bytes, not %d", p.path, len(got), n)
	}
	if (encoding == "7bit" || encoding == "8bit") && withoutNUL(string(got)) != string(plain) {
		t.Errorf("BINARY of %v is %.100q, not %.100q", p.path, got, plain)
	}
}

// sift searches, sorts and threads the folder.
func sift(t *testing.T, c *imapclient.Client, all []specimen) {
	t.Helper()
	found, err := c.UIDSearch(&imap.SearchCriteria{Text: []string{"needle"}}, nil).Wait()
	if err != nil {
		t.Fatal(err)
	}
	// Files and invisible HTML are not searched.
	hidden := []string{"multipart of no kind", "1,000 multiparts in each other", "1,000 messages in each other", "binary", "bad HTML"}
	for i, x := range all {
		if strings.Contains(x.text, "needle") && !slices.Contains(hidden, x.name) && !slices.Contains(found.AllUIDs(), imap.UID(i+1)) {
			t.Errorf("the needle of %q is not found", x.name)
		}
	}
	for _, criteria := range []*imap.SearchCriteria{
		{Body: []string{"ü"}}, {Header: []imap.SearchCriteriaHeaderField{{Key: "Subject", Value: "Grüße"}}},
		{Header: []imap.SearchCriteriaHeaderField{{Key: "X-Long", Value: "xxxx"}}}, {Header: []imap.SearchCriteriaHeaderField{{Key: "From", Value: "@"}}},
		{SentSince: time.Unix(1e9, 0)}, {SentBefore: time.Unix(1e9, 0)}, {Not: []imap.SearchCriteria{{Text: []string{"\u0080"}}}},
	} {
		if _, err := c.UIDSearch(criteria, nil).Wait(); err != nil {
			t.Errorf("%+v: %v", criteria, err)
		}
	}
	for _, key := range []imapclient.SortKey{"ARRIVAL", "CC", "DATE", "FROM", "SIZE", "SUBJECT", "TO", "DISPLAYFROM", "DISPLAYTO"} {
		sorted, err := c.UIDSort(&imapclient.SortOptions{SearchCriteria: &imap.SearchCriteria{}, SortCriteria: []imapclient.SortCriterion{{Key: key}}}).Wait()
		if err != nil || len(sorted) != len(all) {
			t.Errorf("by %s: %d of %d, %v", key, len(sorted), len(all), err)
		}
	}
	for _, algorithm := range []imap.ThreadAlgorithm{imap.ThreadOrderedSubject, imap.ThreadReferences} {
		threads, err := c.UIDThread(&imapclient.ThreadOptions{Algorithm: algorithm, SearchCriteria: &imap.SearchCriteria{}}).Wait()
		n := 0
		var count func(x []imapclient.ThreadData)
		count = func(x []imapclient.ThreadData) {
			for _, d := range x {
				n += len(d.Chain)
				count(d.SubThreads)
			}
		}
		if count(threads); err != nil || n != len(all) {
			t.Errorf("%s: %d of %d, %v", algorithm, n, len(all), err)
		}
	}
	if _, err := c.Copy(imap.SeqSet{{Start: 1}}, "Archive").Wait(); err != nil {
		t.Error(fmt.Errorf("copying them: %w", err))
	}
}
