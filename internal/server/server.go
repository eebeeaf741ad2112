// SPDX-License-Identifier: Apache-2.0

// Package server is the wiring of the service and nothing else: Start reads
// from the ground floor to the doors, and shows who needs whom.
package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/api"
	"github.com/mailstead/mailstead/internal/blob"
	"github.com/mailstead/mailstead/internal/cert"
	"github.com/mailstead/mailstead/internal/credential"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/dns"
	"github.com/mailstead/mailstead/internal/domain"
	"github.com/mailstead/mailstead/internal/event"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/folder"
	"github.com/mailstead/mailstead/internal/imapd"
	"github.com/mailstead/mailstead/internal/inbound"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/outbound"
	"github.com/mailstead/mailstead/internal/queue"
	"github.com/mailstead/mailstead/internal/relay"
	"github.com/mailstead/mailstead/internal/route"
	"github.com/mailstead/mailstead/internal/secret"
	"github.com/mailstead/mailstead/internal/signal"
	"github.com/mailstead/mailstead/internal/smtpd"
	"github.com/mailstead/mailstead/internal/throttle"
)

// Server is a running service.
type Server struct {
	Config Config
	Log    *slog.Logger
	Dev    *Dev // what dev.json says; nil for serve

	// The rooms, for tests and for the demonstration data of dev.
	Accounts  *account.Accounts
	Domains   *domain.Domains
	Mailboxes *mailbox.Mailboxes
	Folders   *folder.Store
	Queue     *queue.Queue
	Events    *event.Log
	DB        *db.DB

	data  *dataFolder
	node  *db.Node
	hub   *signal.Hub
	certs *cert.Source
	doors *doors
	http  *http.Server
	imap  *imapd.Server
	smtp  []*smtpd.Server
	zone  *dns.Server

	duties    sync.WaitGroup // background work that ends with stopDuties
	stop      context.CancelFunc
	queueDone chan struct{}
	stopQueue context.CancelFunc
	failed    chan error
}
