// SPDX-License-Identifier: Apache-2.0

package migration

import (
	"bytes"
	"net"

	"github.com/emersion/go-imap/v2/imapclient"
)

// Client is a client for tests that knows nothing of IMAP4rev2, whose names of
// folders it gets wrong.
func Client(conn net.Conn) *imapclient.Client { return imapclient.New(older{conn}, nil) }

// older hides IMAP4rev2.
type older struct{ net.Conn }

// Read reads a piece, which has the names of capabilities whole.
func (o older) Read(p []byte) (int, error) {
	n, err := o.Conn.Read(p)
	return copy(p, bytes.ReplaceAll(p[:n], []byte("IMAP4rev2"), []byte("XMAP4REV2"))), err
}
