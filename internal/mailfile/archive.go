// SPDX-License-Identifier: Apache-2.0

// Package mailfile reads and writes mail in files: mbox in its variants,
// Maildir and .eml, alone or many of them in a tar.
//
// What is read is a stream of any length, in memory that does not grow with
// it, and may come from anyone: names in it are never names of files here, and
// what can't be read is told and passed over as far as that is possible.
// Messages are given with CRLF line ends. What is written is read back as it
// was, byte by byte, also where other programs would lose something.
package mailfile

import (
	"io"
	"strings"
	"time"
	"unicode"

	"github.com/mailstead/mailstead/internal/fault"
)

// Flags are what a message is marked with.
type Flags uint8

// The flags.
const (
	Seen Flags = 1 << iota
	Answered
	Flagged
	Deleted
	Draft
)

// Message is a message of an archive.
type Message struct {
	Location        string    // where it stands, for people
	Folder          string    // its folder, levels separated by "/"; "" if the archive says nothing
	SpecialUse      string    // the folder's special use (RFC 6154), or NoSpecialUse; "" if the archive says nothing
	Date            time.Time // when it was received; zero if that is not known
	FileDate        time.Time // when its file was changed; zero if that is not known
	Flags           Flags
	Keywords        []string         // not checked
	PendingKeywords *PendingKeywords // keywords that the archive may name only later; nil for none
	Expunged        bool             // marked as expunged by the program that wrote the archive
	Body            io.Reader
}

// PendingKeywords are keywords of a message whose names stand in a file of its Maildir that has
// not come yet.
type PendingKeywords struct {
	Maildir string
	Flags   uint32 // a bit for each, from a to z
	Key     string // of the message, in a file of further keywords; "" for none
}

// Folder is a folder of an archive.
type Folder struct {
	Name       string // levels separated by "/"; "" for the inbox
	SpecialUse string // its special use, or NoSpecialUse; "" if the archive says nothing
	Subscribed bool   // also if the archive does not tell
}

// NoSpecialUse says of a folder that it has no special use, whatever its name is.
const NoSpecialUse = "none"

// parseSpecialUse reads a special use where an archive tells it.
func parseSpecialUse(text string) string {
	if text == "" {
		return NoSpecialUse
	}
	return text
}

// Sink takes what an archive holds, in its order. An error of its funcs ends
// the reading and is returned.
type Sink struct {
	// Message takes a message. Its Body must not be read later; it need not be
	// read to its end.
	Message func(m *Message) error
	// Folder takes a folder that the archive tells of, also if it is empty.
	// It may be called for the same one more than once.
	Folder func(f Folder) error
	// KeywordNames takes a file that names keywords of messages of a Maildir that came before
	// it: words returns those of one. nil if they don't matter.
	KeywordNames func(maildir string, words func(u *PendingKeywords) []string) error
	// Failed takes what could not be read, and why.
	Failed func(place, why string) error
}

// Limits of what is kept in memory while an archive is read.
const (
	maxLocation        = 200                 // bytes
	maxPath            = 4 << 10             // bytes of a file's name, as systems bound it; of thousands it is remembered
	maxKeywordsFile    = 256 << 10           // bytes of a file that tells of keywords
	maxKeywordsFiles   = 4 * maxKeywordsFile // of all of them
	maxFolderList      = 4 << 20             // bytes of a file that tells of folders
	maxFolderEntry     = 64 << 10            // bytes of what it tells of one
	maxFolderNames     = 1 << 20             // bytes of the names that it tells
	maxMessageKeywords = 16 << 10            // bytes of the keywords of one message: more than ours can have
	maxMaildirs        = 10_000              // folders with keywords, and folders that are told
)

// printableName makes a name of an archive fit to be shown.
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

// CodeBroken is that of an archive that can't be read.
const CodeBroken = "broken_archive"

func brokenError(why string) error { return fault.New(fault.Invalid, CodeBroken, "%s", why) }

// inputReader remembers why a stream ended, so that trouble on its way is not taken
// for trouble of the archive.
type inputReader struct {
	io.Reader
	bytesRead int64
	err       error
}

// Read reads on.
func (s *inputReader) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	s.bytesRead += int64(n)
	if err != nil && err != io.EOF { //nolint:errorlint // what io.Reader promises
		s.err = err
	}
	return n, err
}

// errorOrBroken returns the stream's own error if it had one, else that the archive is
// broken.
func (s *inputReader) errorOrBroken(why string) error {
	if s.err != nil {
		return s.err
	}
	return brokenError(why)
}
