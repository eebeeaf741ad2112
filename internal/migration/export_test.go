// SPDX-License-Identifier: Apache-2.0

package migration

import (
	"bytes"
	"net"

	"github.com/emersion/go-imap/v2/imapclient"
)

// Client is a client for tests without IMAP4rev2, whose folder names the library gets wrong.
func Client(conn net.Conn) *imapclient.Client { return imapclient.New(older{conn}, nil) }

// older hides IMAP4rev2 from the client.
type older struct{ net.Conn }

// Read reads a piece. The names of capabilities in it must be whole.
func (o older) Read(p []byte) (int, error) {
	n, err := o.Conn.Read(p)
	return copy(p, bytes.ReplaceAll(p[:n], []byte("IMAP4rev2"), []byte("XMAP4REV2"))), err
}
