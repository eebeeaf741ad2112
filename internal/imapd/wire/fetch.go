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

func (r *Reader) fetch(uid bool) (Command, error) {
	var cmd Fetch
	var err error
	if cmd.Messages, err = r.numSet(uid); err != nil {
		return nil, err
	}
	if uid {
		cmd.Items |= FetchUID
	}
	if err = r.sp(); err != nil {
		return nil, err
	}
	if r.peek() == '(' {
		// A macro stands alone, never in a list.
		none := true
		err = r.list(maxFetchItems, func() error { none = false; return r.fetchItem(&cmd) })
		if err == nil && none {
			err = bad("FETCH needs an item.")
		}
	} else if !r.fetchMacro(&cmd) {
		err = r.fetchItem(&cmd)
	}
	if err != nil {
		return nil, err
	}
	if r.accept(' ') {
		if err = r.list(maxListItems, func() error { return r.fetchModifier(&cmd) }); err != nil {
			return nil, err
		}
	}
	if cmd.Vanished && (!uid || !cmd.HasChangedSince) {
		return nil, bad("VANISHED needs UID FETCH and CHANGEDSINCE.")
	}
	if cmd.Partial != (Page{}) && !uid {
		return nil, bad("PARTIAL needs UID FETCH.")
	}
	return &cmd, nil
}

const maxFetchItems = MaxSections + 32

func (r *Reader) fetchMacro(cmd *Fetch) bool {
	const fast = FetchFlags | FetchInternalDate | FetchSize
	switch {
	case r.acceptWord("FAST"):
		cmd.Items |= fast
	case r.acceptWord("ALL"):
		cmd.Items |= fast | FetchEnvelope
	case r.acceptWord("FULL"):
		cmd.Items |= fast | FetchEnvelope | FetchBody
	default:
		return false
	}
	return true
}

func (r *Reader) fetchItem(cmd *Fetch) error {
	switch string(r.word()) {
	case "UID":
		cmd.Items |= FetchUID
	case "FLAGS":
		cmd.Items |= FetchFlags
	case "INTERNALDATE":
		cmd.Items |= FetchInternalDate
	case "RFC822.SIZE":
		cmd.Items |= FetchSize
	case "ENVELOPE":
		cmd.Items |= FetchEnvelope
	case "BODYSTRUCTURE":
		cmd.Items |= FetchBodyStructure
	case "MODSEQ":
		cmd.Items |= FetchModSeq
	case "EMAILID":
		cmd.Items |= FetchEmailID
	case "THREADID":
		cmd.Items |= FetchThreadID
	case "SAVEDATE":
		cmd.Items |= FetchSaveDate
	case "PREVIEW":
		cmd.Items |= FetchPreview
		return r.previewModifier(cmd)
	case "BODY":
		if r.peek() != '[' {
			cmd.Items |= FetchBody
			return nil
		}
		return r.section(cmd, Section{Kind: SectionBody})
	case "BODY.PEEK":
		return r.section(cmd, Section{Kind: SectionBody, Peek: true})
	case "BINARY":
		return r.section(cmd, Section{Kind: SectionBinary})
	case "BINARY.PEEK":
		return r.section(cmd, Section{Kind: SectionBinary, Peek: true})
	case "BINARY.SIZE":
		return r.section(cmd, Section{Kind: SectionBinarySize, Peek: true})
	case "RFC822":
		return addSection(cmd, Section{Kind: SectionRFC822})
	case "RFC822.HEADER":
		return addSection(cmd, Section{Kind: SectionRFC822, Part: PartHeader, Peek: true})
	case "RFC822.TEXT":
		return addSection(cmd, Section{Kind: SectionRFC822, Part: PartText})
	default:
		return bad("There is no such FETCH item.")
	}
	return nil
}

// previewModifier takes what may follow PREVIEW: (LAZY).
func (r *Reader) previewModifier(cmd *Fetch) error {
	start := r.pos
	if !r.accept(' ') || r.peek() != '(' {
		r.pos = start
		return nil
	}
	r.pos++
	if !r.acceptWord("LAZY") { // FETCH modifiers follow
		r.pos = start
		return nil
	}
	cmd.Items |= FetchPreviewLazy
	return r.expect(')')
}

func (r *Reader) fetchModifier(cmd *Fetch) (err error) {
	switch string(r.word()) {
	case "CHANGEDSINCE":
		if err = r.sp(); err != nil {
			return err
		}
		cmd.HasChangedSince = true
		cmd.Items |= FetchModSeq
		cmd.ChangedSince, err = r.modSeq()
		return err
	case "VANISHED":
		cmd.Vanished = true
		return nil
	case "PARTIAL":
		if cmd.Partial != (Page{}) {
			return bad("There is more than one PARTIAL.")
		}
		if err = r.sp(); err != nil {
			return err
		}
		cmd.Partial, err = r.page()
		return err
	}
	return bad("There is no such FETCH modifier.")
}

// page takes a partial-range.
func (r *Reader) page() (p Page, err error) {
	p.FromEnd = r.accept('-')
	if p.First, err = r.nzNumber32(); err != nil {
		return p, err
	}
	if !r.accept(':') || r.accept('-') != p.FromEnd {
		return p, errSyntax
	}
	p.Last, err = r.nzNumber32()
	return p, err
}

func addSection(cmd *Fetch, s Section) error {
	if len(cmd.Sections) == MaxSections {
		return overLimit("FETCH asks for too many sections.")
	}
	cmd.Sections = append(cmd.Sections, s)
	return nil
}

// section takes [section] and <partial> after BODY or BINARY.
func (r *Reader) section(cmd *Fetch, s Section) (err error) {
	if err = r.expect('['); err != nil {
		return err
	}
	if err = r.sectionSpec(&s); err != nil {
		return err
	}
	if err = r.expect(']'); err != nil {
		return err
	}
	if s.Kind != SectionBinarySize && r.accept('<') {
		s.HasPartial = true
		if s.Offset, err = r.number(math.MaxInt64); err != nil {
			return err
		}
		if err = r.expect('.'); err != nil {
			return err
		}
		if s.Count, err = r.number(math.MaxInt64); err != nil {
			return err
		}
		if s.Count == 0 {
			return bad("A partial FETCH asks for at least one byte.")
		}
		if err = r.expect('>'); err != nil {
			return err
		}
	}
	return addSection(cmd, s)
}
