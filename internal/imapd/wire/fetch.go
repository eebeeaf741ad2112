// SPDX-License-Identifier: Apache-2.0

package wire

import "math"

// FetchItems are the FETCH items without arguments, as bits.
type FetchItems uint16

// The items (RFC 9051 §6.4.5; MODSEQ RFC 7162, EMAILID and THREADID RFC 8474,
// SAVEDATE RFC 8514, PREVIEW RFC 8970).
const (
	FetchUID FetchItems = 1 << iota
	FetchFlags
	FetchInternalDate
	FetchSize // RFC822.SIZE
	FetchEnvelope
	FetchBody // BODY: the structure without extension data
	FetchBodyStructure
	FetchModSeq
	FetchEmailID
	FetchThreadID
	FetchSaveDate
	FetchPreview
	FetchPreviewLazy // PREVIEW (LAZY): only if it is at hand; FetchPreview is set too
)

// Fetch is FETCH. The UID form asks for FetchUID, CHANGEDSINCE for
// FetchModSeq, whether the client spelled it out or not.
type Fetch struct {
	Messages        NumSet
	Items           FetchItems
	Sections        []Section // in the order asked for
	ChangedSince    uint64
	HasChangedSince bool
	Vanished        bool // RFC 7162 §3.2.6: tell what is gone since ChangedSince
	Partial         Page // RFC 9394 §3.3
}

// Name returns the command's name.
func (c *Fetch) Name() string { return uidName(c.Messages.UID, "FETCH") }

// Page is a PARTIAL range (RFC 9394): the results from First to Last, counted
// from 1, from the end if FromEnd. The zero Page is none.
type Page struct {
	First, Last uint32 // in either order; the answer repeats them as they are
	FromEnd     bool
}

const maxFetchItems = MaxSections + 32

func (r *Reader) fetch(uid bool) Command {
	cmd := Fetch{Messages: r.numSet(uid)}
	if uid {
		cmd.Items |= FetchUID
	}
	r.sp()
	if r.peek() == '(' {
		// A macro stands alone, never in a list.
		none := true
		if r.list(maxFetchItems, func() { none = false; r.fetchItem(&cmd, r.word()) }); none {
			fail(bad("FETCH needs an item."))
		}
	} else if name := r.word(); fetchMacros[string(name)] != 0 {
		cmd.Items |= fetchMacros[string(name)]
	} else {
		r.fetchItem(&cmd, name)
	}
	if r.accept(' ') {
		r.list(maxListItems, func() { r.fetchModifier(&cmd) })
	}
	if cmd.Vanished && (!uid || !cmd.HasChangedSince) {
		fail(bad("VANISHED needs UID FETCH and CHANGEDSINCE."))
	}
	if cmd.Partial != (Page{}) && !uid {
		fail(bad("PARTIAL needs UID FETCH."))
	}
	return &cmd
}

var fetchMacros = map[string]FetchItems{
	"FAST": FetchFlags | FetchInternalDate | FetchSize,
	"ALL":  FetchFlags | FetchInternalDate | FetchSize | FetchEnvelope,
	"FULL": FetchFlags | FetchInternalDate | FetchSize | FetchEnvelope | FetchBody,
}

var fetchItemNames = map[string]FetchItems{
	"UID": FetchUID, "FLAGS": FetchFlags, "INTERNALDATE": FetchInternalDate, "RFC822.SIZE": FetchSize, "ENVELOPE": FetchEnvelope,
	"BODY": FetchBody, "BODYSTRUCTURE": FetchBodyStructure, "MODSEQ": FetchModSeq, "EMAILID": FetchEmailID, "THREADID": FetchThreadID,
	"SAVEDATE": FetchSaveDate, "PREVIEW": FetchPreview,
}

// fetchSections are the items that name a section: in brackets, or, for SectionRFC822, by themselves.
var fetchSections = map[string]Section{
	"BODY":          {Kind: SectionBody},
	"BODY.PEEK":     {Kind: SectionBody, Peek: true},
	"BINARY":        {Kind: SectionBinary},
	"BINARY.PEEK":   {Kind: SectionBinary, Peek: true},
	"BINARY.SIZE":   {Kind: SectionBinarySize, Peek: true},
	"RFC822":        {Kind: SectionRFC822},
	"RFC822.HEADER": {Kind: SectionRFC822, Part: PartHeader, Peek: true},
	"RFC822.TEXT":   {Kind: SectionRFC822, Part: PartText},
}

func (r *Reader) fetchItem(cmd *Fetch, name []byte) {
	item := fetchItemNames[string(name)]
	if section, ok := fetchSections[string(name)]; ok && (item == 0 || r.peek() == '[') {
		if section.Kind != SectionRFC822 {
			r.section(&section)
		}
		if len(cmd.Sections) == MaxSections {
			fail(overLimit("FETCH asks for too many sections."))
		}
		cmd.Sections = append(cmd.Sections, section)
		return
	}
	if item == 0 {
		fail(bad("There is no such FETCH item."))
	}
	if cmd.Items |= item; item == FetchPreview {
		r.previewModifier(cmd)
	}
}

// previewModifier takes what may follow PREVIEW: (LAZY).
func (r *Reader) previewModifier(cmd *Fetch) {
	start := r.pos
	if !r.accept(' ') || !r.accept('(') || !r.acceptWord("LAZY") { // FETCH modifiers may follow
		r.pos = start
		return
	}
	cmd.Items |= FetchPreviewLazy
	r.expect(')')
}

func (r *Reader) fetchModifier(cmd *Fetch) {
	switch string(r.word()) {
	case "CHANGEDSINCE":
		r.sp()
		cmd.HasChangedSince = true
		cmd.Items |= FetchModSeq
		cmd.ChangedSince = r.modSeq()
	case "VANISHED":
		cmd.Vanished = true
	case "PARTIAL":
		if cmd.Partial != (Page{}) {
			fail(bad("There is more than one PARTIAL."))
		}
		r.sp()
		cmd.Partial = r.page()
	default:
		fail(bad("There is no such FETCH modifier."))
	}
}

// page takes a partial-range.
func (r *Reader) page() (p Page) {
	p.FromEnd = r.accept('-')
	p.First = r.nzNumber32()
	if !r.accept(':') || r.accept('-') != p.FromEnd {
		fail(errSyntax)
	}
	p.Last = r.nzNumber32()
	return p
}

// section takes [section] and <partial> after BODY or BINARY.
func (r *Reader) section(s *Section) {
	r.expect('[')
	r.sectionSpec(s)
	r.expect(']')
	if s.Kind == SectionBinarySize || !r.accept('<') {
		return
	}
	s.HasPartial = true
	s.Offset = r.number(math.MaxInt64)
	r.expect('.')
	if s.Count = r.number(math.MaxInt64); s.Count == 0 {
		fail(bad("A partial FETCH asks for at least one byte."))
	}
	r.expect('>')
}
