// SPDX-License-Identifier: Apache-2.0

package interop

import (
	"fmt"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/dns/dnstest"
)

// A real PgBouncer between the service and PostgreSQL rejects session settings or, if configured
// to, drops them: then commits may not be flushed before their acknowledgement, and notifications
// get lost. The service reports that, and does not start.
func TestPooler(t *testing.T) {
	const asked = "search_path,synchronous_commit,default_transaction_isolation,statement_timeout,idle_session_timeout,idle_in_transaction_session_timeout,lock_timeout,plan_cache_mode," +
		"enable_seqscan,enable_bitmapscan,enable_hashjoin,enable_mergejoin,jit"
	for name, settings := range map[string]string{
		"as it comes":                 "pool_mode=session",
		"told to drop the settings":   "pool_mode=session\nignore_startup_parameters=" + asked,
		"the same, by transaction":    "pool_mode=transaction\nignore_startup_parameters=" + asked,
		"told to drop some of theirs": "pool_mode=session\nignore_startup_parameters=search_path,lock_timeout",
	} {
		t.Run(name, func(t *testing.T) {
			url := pooled(t, dbtest.Postgres(t), settings)
			_, open := db.Open(t.Context(), db.Options{URL: url})
			_, look := db.OpenInspector(t.Context(), db.InspectOptions{URL: url})
			for _, err := range []error{open, look} {
				if err == nil || !strings.Contains(err.Error(), "let the database's URL name the server itself") {
					t.Error(err)
				}
			}
		})
	}
}

// pooled starts a PgBouncer in front of a URL's server, and returns the URL of the same database
// through it.
func pooled(t *testing.T, url, settings string) string {
	t.Helper()
	server, err := pgx.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	port := dnstest.FreePort(t, "127.0.0.1")
	write(t, dir+"/pgbouncer.ini", fmt.Sprintf("[databases]\n*=host=%s port=%d user=%s password=%s\n[pgbouncer]\nlisten_addr=127.0.0.1\nlisten_port=%d\nunix_socket_dir=\nauth_type=any\n%s\n",
		server.Host, server.Port, server.User, server.Password, port, settings))
	args := []string{dir + "/pgbouncer.ini"}
	if os.Getuid() == 0 {
		args = append(args, "-u", "nobody") // it doesn't run as root
	}
	addr := fmt.Sprintf("127.0.0.1:%d", port)
	daemon(t, func() error {
		nc, err := net.Dial("tcp", addr)
		if err != nil {
			return err
		}
		return nc.Close()
	}, "pgbouncer", args...)
	through, err := pgx.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("postgres://%s@%s/%s?sslmode=disable&search_path=%s", through.User, addr, through.Database, through.RuntimeParams["search_path"])
}
