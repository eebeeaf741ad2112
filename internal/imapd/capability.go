// SPDX-License-Identifier: Apache-2.0

package imapd

import (
	"fmt"

	"github.com/mailstead/mailstead/internal/credential"
	"github.com/mailstead/mailstead/internal/imapd/wire"
)

// capabilities returns the capabilities that the session may use in its state. Only completely
// implemented ones are listed.
func (s *session) capabilities() []string {
	all := []string{"IMAP4rev1", "IMAP4rev2", "LITERAL+", "SASL-IR", "ID", "ENABLE", "IDLE", "NAMESPACE"}
	if s.mailboxID == 0 {
		if !s.isTLS {
			return append(all, "STARTTLS", "LOGINDISABLED")
		}
		if s.Mailboxes.SCRAM.IsOffered() {
			all = append(all, "AUTH="+credential.MechanismSCRAM)
		}
		return append(all, "AUTH=PLAIN")
	}
	if !s.DisableUnauthenticate {
		all = append(all, "UNAUTHENTICATE")
	}
	return append(all, "CHILDREN", "SPECIAL-USE", "UIDPLUS", "MOVE", "UNSELECT", "ESEARCH", "CONDSTORE",
		"SEARCHRES", "WITHIN", "SAVEDATE", "PARTIAL", "BINARY", "PREVIEW", "SORT", "SORT=DISPLAY", "ESORT",
		"THREAD=ORDEREDSUBJECT", "THREAD=REFERENCES",
		"LIST-EXTENDED", "LIST-STATUS", "STATUS=SIZE", "CREATE-SPECIAL-USE", "OBJECTID", "QRESYNC", "QUOTA", "QUOTA=RES-STORAGE",
		"MULTIAPPEND", "REPLACE", "UTF8=ACCEPT", "COMPRESS=DEFLATE",
		fmt.Sprintf("APPENDLIMIT=%d", MaxMessageBytes))
}

func (s *session) capability() (wire.Code, error) {
	s.w.Capability(s.capabilities()...)
	return "", nil
}
