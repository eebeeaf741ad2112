// SPDX-License-Identifier: Apache-2.0

// Package mailfile reads and writes mail files: mbox in its variants, Maildir and .eml, single or
// in a tar.
//
// Readers process a stream of any length in constant memory. The stream is untrusted: its names are
// never used as local file names. Readers report unreadable parts and skip them as far as possible.
// They return messages with CRLF line endings. Written messages are read back byte for byte, also
// where other programs would lose something.
package mailfile

import (
	"io"
	"strings"
	"time"
	"unicode"

	"github.com/mailstead/mailstead/internal/fault"
)

// Flags are a message's flags.
type Flags uint8

// Values of Flags.
const (
	Seen Flags = 1 << iota
	Answered
	Flagged
	Deleted
	Draft
)

// Message is a message in an archive.
type Message struct {
	Location        string    // place in the archive, for people
	Folder          string    // levels separated by "/"; "" if the archive doesn't say
	SpecialUse      string    // special use of the folder (RFC 6154), or NoSpecialUse; "" if the archive doesn't say
	Date            time.Time // when it was received; zero if unknown
	FileDate        time.Time // modification time of its file; zero if unknown
	Flags           Flags
	Keywords        []string         // not validated
	PendingKeywords *PendingKeywords // keywords that the archive may name later; nil for none
	Expunged        bool             // marked as expunged by the program that wrote the archive
	Body            io.Reader
}

// PendingKeywords are keywords of a message whose names are in a file of its Maildir that has not
// been read yet.
type PendingKeywords struct {
	Maildir string
	Flags   uint32 // one bit for each letter from a to z
	Key     string // key of the message in the file with extra keywords; "" for none
}

// Folder is a folder in an archive.
type Folder struct {
	Name       string // levels separated by "/"; "" for the inbox
	SpecialUse string // special use, or NoSpecialUse; "" if the archive doesn't say
	Subscribed bool   // also true if the archive doesn't say
}

// NoSpecialUse means that a folder has no special use, whatever its name.
const NoSpecialUse = "none"

// parseSpecialUse parses a special use from an archive.
func parseSpecialUse(text string) string {
	if text == "" {
		return NoSpecialUse
	}
	return text
}

// Sink receives the contents of an archive, in the archive's order. An error of one of its
// functions ends the reading and is returned.
type Sink struct {
	// Message receives a message. Its Body must not be read after the call; it need not be read to
	// its end.
	Message func(m *Message) error
	// Folder receives a folder that the archive lists, even an empty one. It may be called several
	// times for the same folder.
	Folder func(f Folder) error
	// KeywordNames receives a file that names the keywords of earlier messages in the Maildir.
	// words returns the keywords of one message. nil: not needed.
	KeywordNames func(maildir string, words func(u *PendingKeywords) []string) error
	// Failed receives what could not be read, and why.
	Failed func(place, why string) error
}

// Limits of the data in memory while an archive is read.
const (
	maxLocation        = 200                 // bytes
	maxPath            = 4 << 10             // bytes of a file name, as systems limit it; thousands of names are remembered
	maxKeywordsFile    = 256 << 10           // bytes of one keywords file
	maxKeywordsFiles   = 4 * maxKeywordsFile // bytes of all keywords files
	maxFolderList      = 4 << 20             // bytes of a folder list
	maxFolderEntry     = 64 << 10            // bytes of one of its entries
	maxFolderNames     = 1 << 20             // bytes of its names
	maxMessageKeywords = 16 << 10            // bytes of one message's keywords, more than a local message can have
	maxMaildirs        = 10_000              // Maildirs with keywords, and listed folders
)

// printableName makes a name from an archive printable.
func printableName(name string) string {
	name = strings.Map(func(r rune) rune {
		if r == unicode.ReplacementChar || !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(name, "?"))
	if len(name) > maxLocation {
		name = "…" + strings.ToValidUTF8(name[len(name)-maxLocation:], "")
	}
	return name
}

// CodeBroken is the error code for an unreadable archive.
const CodeBroken = "broken_archive"

func brokenError(why string) error { return fault.New(fault.Invalid, CodeBroken, "%s", why) }

// inputReader remembers why a stream ended, so that a transport error is not taken for a broken
// archive.
type inputReader struct {
	io.Reader
	bytesRead int64
	err       error
}

// Read implements io.Reader.
func (s *inputReader) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	s.bytesRead += int64(n)
	if err != nil && err != io.EOF { //nolint:errorlint // what io.Reader promises
		s.err = err
	}
	return n, err
}

// errorOrBroken returns the stream's own error if there is one, else an error for a broken archive.
func (s *inputReader) errorOrBroken(why string) error {
	if s.err != nil {
		return s.err
	}
	return brokenError(why)
}
