// SPDX-License-Identifier: Apache-2.0

package migration

import (
	"net"
	"time"

	"github.com/emersion/go-imap/v2/imapclient"
)

// Client is a client for tests that knows nothing of IMAP4rev2, whose names of
// folders it gets wrong.
func Client(conn net.Conn) *imapclient.Client {
	return imapclient.New(&line{Conn: conn, patience: time.Hour, budget: 1 << 60, hiding: true}, nil)
}
