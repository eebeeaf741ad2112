// SPDX-License-Identifier: Apache-2.0

// Package wire is the IMAP protocol without a server: a Reader turns what a
// client sends into typed commands, a Writer turns answers into bytes. It
// knows the grammar of RFC 3501 and RFC 9051 and of the extensions named in
// the commands' comments, and it knows nothing of folders, logins or states:
// which command is allowed when, and which extension is announced, is the
// session's to say.
//
// A session reads in a loop. A *Error is an answer to the client (Bye: answer
// and close); any other error of the Reader means that the connection is gone.
//
//	r := wire.NewReader(bufio.NewReader(conn), w.Continue)
//	for {
//		tag, cmd, err := r.ReadCommand()
//		var refused *wire.Error
//		if errors.As(err, &refused) {
//			w.Refuse(tag, refused)
//		} else if err != nil {
//			return err
//		}
//		switch cmd := cmd.(type) {
//		case *wire.Fetch: …
//		}
//		w.Flush()
//	}
//
// Nothing here is safe for use by several goroutines at once, but one may
// read (ReadDone) while another writes.
package wire

// Status is the condition that a status response reports (RFC 9051 §7.1).
type Status string

// The conditions. A *Error with Bye ends the connection.
const (
	OK  Status = "OK"
	No  Status = "NO"
	Bad Status = "BAD"
	Bye Status = "BYE"
)

// Error is a refusal in the words of the protocol. Text is a sentence for the
// client's user or author; it never repeats what the client sent.
type Error struct {
	Status Status
	Code   Code // may be empty
	Text   string
	// ClearsSaved says that the command was to save its result: nothing is saved
	// after the refusal (RFC 9051 §6.4.4.1).
	ClearsSaved bool
}

// Error returns the refusal as a status line without its tag.
func (e *Error) Error() string {
	if e.Code == "" {
		return string(e.Status) + " " + e.Text
	}
	return string(e.Status) + " [" + string(e.Code) + "] " + e.Text
}

func bad(text string) *Error { return &Error{Status: Bad, Text: text} }

func newError(status Status, code Code, text string) *Error {
	return &Error{Status: status, Code: code, Text: text}
}

// Limits bound what one command may cost. All are in bytes.
type Limits struct {
	Line    int   // all lines of a command, line ends included
	Literal int   // all literals of a command, an APPEND's message excepted
	Append  int64 // one message given to APPEND or REPLACE
	Discard int64 // what is read and thrown away to get past a refused command
}

// LimitsBeforeLogin are for clients that nobody vouches for yet. An ID may have
// 30 fields of 1 KiB (RFC 2971 §3.3).
func LimitsBeforeLogin() Limits {
	return Limits{Line: 40 << 10, Literal: 40 << 10, Append: 0, Discard: 64 << 10}
}

// LimitsAfterLogin are for known clients; messages may have up to appendLimit
// bytes.
func LimitsAfterLogin(appendLimit int64) Limits {
	return Limits{Line: 64 << 10, Literal: 64 << 10, Append: appendLimit, Discard: appendLimit + 1<<20}
}

// Limits on parts of a command; each is refused with NO [LIMIT].
const (
	MaxKeywords      = 64    // keywords in one flag list
	MaxKeywordBytes  = 100   // bytes in one keyword
	MaxRanges        = 16384 // ranges in one sequence set
	MaxSections      = 64    // body sections in one FETCH
	MaxSectionFields = 256   // header names in one section
	MaxSectionDepth  = 100   // numbers in one part specifier
	MaxSearchKeys    = 1000  // keys in one search program
	MaxSearchDepth   = 50    // nesting of a search program
	MaxPatterns      = 100   // patterns of one extended LIST
	maxListItems     = 64    // entries of any other parenthesised list
	maxTagBytes      = 128
)

func overLimit(text string) *Error { return newError(No, CodeLimit, text) }
