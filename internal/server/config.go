// SPDX-License-Identifier: Apache-2.0

package server

import (
	"cmp"
	"crypto"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/credential"
	"github.com/mailstead/mailstead/internal/datadir"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/mailauth"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/route"
)

// Config holds all settings of the service. Each is a flag, an environment variable MAILSTEAD_…
// and a key of the TOML file under the same name. The tags define name, default and help.
type Config struct {
	Host     string `help:"The service's own host name: what MX records and mail clients point to." placeholder:"NAME"`
	Data     string `help:"Folder for the database, message files, keys and certificates." default:"/var/lib/mailstead" placeholder:"DIR"`
	Bind     string `help:"Address to listen on; 0.0.0.0 or :: for all." default:"::" placeholder:"ADDRESS"`
	PortBase int    `help:"Added to every standard port (25, 53, 80, 143, 443, 465, 587, 993)." default:"0" placeholder:"N"`
	Database string `help:"\"sqlite\" in the data folder, or a postgres:// URL." default:"sqlite" placeholder:"URL"`
	// DatabaseConnections and DatabaseWait have no effect with SQLite, which is always available.
	DatabaseConnections int           `help:"The most connections to PostgreSQL that this node opens, at least 12; by default 24, or 8 more than the machine has processors." default:"0" placeholder:"N"`
	DatabaseWait        time.Duration `help:"How long requests and sessions wait for a PostgreSQL server that does not answer before they get a temporary error, from 1s to 1m. When it has been down for longer than that, they wait for a fifth of it." default:"10s" placeholder:"TIME"`
	Blobs               string        `help:"Folder for large messages; by default \"blobs\" in the data folder." placeholder:"DIR"`
	TLS                 string        `name:"tls" help:"\"acme\", \"self-signed\", or CERTIFICATE.pem,KEY.pem." default:"acme" placeholder:"KIND"`

	ACMEDirectory string `name:"acme-directory" help:"Another ACME server than Let's Encrypt." placeholder:"URL"`
	ACMERoots     string `name:"acme-roots" help:"PEM file of certificates to trust when talking to that server." placeholder:"FILE"`
	ACMEEmail     string `name:"acme-email" help:"Where the ACME server may write to." placeholder:"ADDRESS"`

	Resolver       string   `help:"DNS server to ask, instead of the system's." placeholder:"HOST:PORT"`
	ResolverFor    []string `name:"resolver-for" help:"DNS servers of some zones, separated by commas, such as 10.in-addr.arpa=10.0.0.1:53. Otherwise the reverse names of private networks, and names under localhost, test, invalid and onion, are asked of nobody." placeholder:"ZONE=HOST:PORT"`
	TrustResolver  bool     `help:"Believe the resolver's DNSSEC verdict; only for one on this machine that validates."`
	Relay          string   `help:"Smart host for all mail to outside: smtp://user:password@host:port, or smtps:// for TLS from the start. Its certificate is checked with smtps, or where a password is sent; ?verify=no takes any, ?verify=yes always checks." placeholder:"URL"`
	SMTPPort       int      `name:"smtp-port" help:"Port on which MX hosts are dialled." default:"25" placeholder:"N"`
	AllowPrivate   []string `help:"Private networks that mail may be sent to, separated by commas." placeholder:"PREFIX"`
	TrustRoots     string   `help:"PEM file of certificates to trust, beside the system's, where the certificate of another mail host, of its MTA-STS policy, of a webhook or, by the check of mail clients' settings, of this service is checked." placeholder:"FILE"`
	MaxConnections int      `name:"max-connections-per-host" help:"Connections to one address of another mail host at a time, whatever domains it is for; a host that complains gets fewer for a while." default:"10" placeholder:"N"`
	MaxMessages    int      `name:"max-messages-per-connection" help:"Messages over one connection to another mail host." default:"500" placeholder:"N"`
	MaxRate        float64  `name:"max-rate-per-host" help:"Messages per second to one address of another mail host; 0 for no limit." default:"0" placeholder:"N"`
	// STSPolicyPort is the port for fetching MTA-STS policies; 0 means 443. For tests.
	STSPolicyPort int `kong:"-"`

	WebhookAllow []string `help:"Networks that webhooks may be sent to, and mailboxes copied from, although they are not public, or are the service's own addresses, separated by commas; plain http is sent there alone." placeholder:"PREFIX"`

	Postmaster string `help:"The operator's address, which gets the mail to postmaster and abuse of the service's own names: a mailbox here, or an address elsewhere. Required." placeholder:"ADDRESS"`

	DMARC            string   `name:"dmarc" help:"What is done with mail from outside that fails the DMARC policy of its author's domain: enforce does what that asks for, junk refuses nothing but files it in Junk, off does nothing. A domain can choose something softer for its own mail." default:"enforce" enum:"enforce,junk,off"`
	TrustedForwarder []string `name:"trusted-forwarder" help:"Domains of forwarders and mailing lists that are believed when they say, by ARC, that a message passed DMARC before they changed it, separated by commas." placeholder:"DOMAIN"`

	Rspamd      string        `name:"rspamd" help:"URL of an rspamd that judges mail from outside, such as http://127.0.0.1:11333; by default a filter of our own does." placeholder:"URL"`
	Clamav      string        `name:"clamav" help:"HOST:PORT or socket of a clamd that searches mail from outside for viruses; what carries one is refused." placeholder:"ADDRESS"`
	SpamFail    string        `name:"spam-fail" help:"What becomes of mail that rspamd or clamd does not judge in time: open takes it in without their judgement, closed has it sent again later." default:"open" enum:"open,closed"`
	SpamTimeout time.Duration `name:"spam-timeout" help:"How long rspamd and clamd may take for a message." default:"20s" placeholder:"TIME"`

	DNSBL []string `name:"dnsbl" help:"DNS block lists that our own filter asks about the hosts that mail comes from, separated by commas: ZONE, or ZONE=POINTS if being on it is not worth 3 of the 5 points that make spam. Mind their terms of use." placeholder:"ZONE"`

	MXMessages int      `name:"mx-messages-per-hour" help:"Messages that the MX accepts in an hour from one network (an IPv4 address, or a /64 of IPv6), on each node; 0 for no limit." default:"10000" placeholder:"N"`
	MXUnknown  int      `name:"mx-unknown-per-hour" help:"Recipients that don't exist which one network may try in an hour before it is told to come later; 0 for no limit." default:"100" placeholder:"N"`
	ProxyFrom  []string `name:"proxy-from" help:"Networks of balancers in front, separated by commas: their connections to the SMTP, IMAP and HTTP listeners must begin with the PROXY protocol (version 1 or 2), which says who the client is. Nobody else is believed." placeholder:"PREFIX"`

	HTTPProxyFrom []string `name:"http-proxy-from" help:"Networks of HTTP proxies in front that end TLS themselves, separated by commas. Their X-Forwarded-For and X-Forwarded-Proto headers say who the client is and whether it used HTTPS; they must set both. Without this, the HTTP port answers only redirects, ACME, MTA-STS and settings for mail programs." placeholder:"PREFIX"`

	LimitRequests   int64 `name:"limit-requests-per-second" help:"Requests a second that an account may make to the API of each node; 0 for no limit. This limit and the following are those of accounts for which nothing else was set." default:"2000" placeholder:"N"`
	LimitBurst      int64 `name:"limit-burst" help:"Requests that may come at once; 0 for as many as in a second." default:"20000" placeholder:"N"`
	LimitHour       int64 `name:"limit-sends-per-hour" help:"Messages that an account may send in an hour of UTC, over all nodes, by the API and by submission; 0 for no limit." default:"1000000" placeholder:"N"`
	LimitDay        int64 `name:"limit-sends-per-day" help:"Messages that an account may send in a day of UTC; 0 for no limit." default:"10000000" placeholder:"N"`
	LimitRecipients int64 `name:"limit-recipients-per-day" help:"Recipients that an account may write to in a day of UTC, each counted once per message; 0 for no limit." default:"20000000" placeholder:"N"`
	LimitStorage    int64 `name:"limit-storage-mb" help:"What the quotas of an account's mailboxes may be together, in megabytes; 0 for no limit." default:"10485760" placeholder:"N"`

	// MigrationWait is the delay before the first retry of a migration's source; 0 means 5 s. For
	// tests.
	MigrationWait time.Duration `kong:"-"`

	// FirstDomainCheck is the delay between a domain's creation and its first DNS check; 0 means
	// a minute. In the sandbox it is shorter.
	FirstDomainCheck time.Duration `kong:"-"`

	// PasswordCost is the cost of new password hashes, and GenerateKey generates DKIM keys; the
	// default if they are zero. For tests.
	PasswordCost credential.Cost                                 `kong:"-"`
	GenerateKey  func(mailauth.Algorithm) (crypto.Signer, error) `kong:"-"`

	// Clock is the clock for limits; nil means time.Now. For tests.
	Clock func() time.Time `kong:"-"`

	KeepMessages int `name:"keep-messages" help:"Days that the API's copy of a sent message is kept once all its deliveries have ended; 0 for ever. Mail in a folder, in the queue, or scheduled is never deleted." default:"30" placeholder:"DAYS"`
	KeepAttempts int `name:"keep-attempts" help:"Days that attempts to deliver, with their SMTP conversations, are kept once the delivery has ended, no longer than its message; 0 as long as that." default:"30" placeholder:"DAYS"`
	KeepThreads  int `name:"keep-threads" help:"Days, from its acceptance, that an answer to a deleted message still finds its thread, and a late report its recipient; 0 for ever." default:"365" placeholder:"DAYS"`
	KeepEvents   int `name:"keep-events" help:"Days that events are kept, and what a webhook did or did not take of them; 0 for ever. The last attempt to deliver one to a webhook is made on the fourth day." default:"30" placeholder:"DAYS"`

	SCRAM string `name:"scram" help:"SCRAM-SHA-256, by which IMAP and submission clients sign in without sending the password. What it needs to be stored of passwords is weaker against guessing than argon2id, should the database be stolen. on offers it, off keeps nothing for it and deletes what there was; learn keeps what it needs of each password that is set or signs in, but does not offer it yet: clients that choose SCRAM by themselves can't sign in before that. It is not for API keys." default:"off" enum:"off,learn,on"`

	IMAPKeepLogin bool `name:"imap-keep-login" help:"Take UNAUTHENTICATE away from IMAP clients, which lets them sign in as somebody else over the same connection; for a proxy in front that looks no further than the first log-in."`

	Node       string        `help:"This node's name; by default the machine's." placeholder:"NAME"`
	Lease      time.Duration `help:"How long after the last sign of a node the others take over its work, from 3s to 5m. A node that can't reach the database starts nothing after two thirds of it. On SQLite, where there are no others, it is 5m." default:"15s" placeholder:"TIME"`
	SecretKey  string        `help:"Key that seals secrets at rest, 32 bytes in hex or base64; by default made once and kept in the data folder." placeholder:"KEY"`
	MaxQuotaMB int64         `name:"max-quota-mb" help:"Largest mailbox quota that can be asked for, in megabytes." default:"102400" placeholder:"N"`
	// MaxFolderMessages and MaxFolders may be 0 in tests, for the store's own defaults.
	MaxFolderMessages int `name:"max-messages-per-folder" help:"Messages that a folder of a mailbox can hold. Clients can't add more; when INBOX or Junk is full, mail to the mailbox is refused for now, as when its quota is used up." default:"1000000" placeholder:"N"`
	MaxFolders        int `name:"max-folders-per-mailbox" help:"Folders that a mailbox can have." default:"10000" placeholder:"N"`

	Drain    time.Duration `help:"How long open sessions may take to finish at shutdown." default:"30s" placeholder:"TIME"`
	LogLevel string        `help:"debug, info, warn or error." default:"info" enum:"debug,info,warn,error"`

	// Dev enables the local sandbox of `mailstead dev`: reserved names resolve in
	// the service's own DNS zone, loopback is trusted, outside mail is captured.
	Dev bool `kong:"-"`
}

// standardPorts are the standard ports, to which PortBase is added.
var standardPorts = map[string]int{
	"smtp": 25, "dns": 53, "http": 80, "imap": 143, "https": 443,
	"submissions": 465, "submission": 587, "imaps": 993,
}

// AnyPort as PortBase makes each listener use a free port. For tests.
const AnyPort = -1

func (c *Config) listenAddr(name string) string {
	port := 0
	if c.PortBase != AnyPort {
		port = c.PortBase + standardPorts[name]
	}
	return net.JoinHostPort(c.Bind, fmt.Sprint(port))
}

// check completes the settings. It returns an error that says what to do if they can't work.
func (c *Config) check() error {
	for _, part := range []func() error{c.checkLocation, c.checkMail, c.checkRetention, c.checkLimits, c.checkNode, c.checkRemotes} {
		if err := part(); err != nil {
			return err
		}
	}
	return nil
}

// checkLocation checks the host name, addresses, and locations of data.
func (c *Config) checkLocation() (err error) {
	if c.Host, err = address.ParseHostname(c.Host); err != nil {
		return errors.New("--host must be the service's own host name, such as mail.example.com")
	}
	if c.Data == "" {
		return errors.New("--data must name a folder")
	}
	if c.Data, err = filepath.Abs(c.Data); err != nil {
		return fmt.Errorf("--data: %w", err)
	}
	if _, err := netip.ParseAddr(c.Bind); err != nil {
		return errors.New("--bind must be an IP address, such as 0.0.0.0")
	}
	if c.PortBase != AnyPort && (c.PortBase < 0 || c.PortBase > 65535-993) {
		return fmt.Errorf("--port-base must be from 0 to %d", 65535-993)
	}
	if c.Database != "sqlite" && !strings.HasPrefix(c.Database, "postgres://") && !strings.HasPrefix(c.Database, "postgresql://") {
		return errors.New(`--database must be "sqlite" or a postgres:// URL`)
	}
	return c.checkBlobs()
}

func (c *Config) checkBlobs() error {
	if strings.HasPrefix(c.Blobs, "s3://") {
		return errors.New("--blobs on S3 is not available in this release; name a folder")
	}
	if c.Blobs == "" {
		c.Blobs = filepath.Join(c.Data, "blobs")
	}
	return nil
}

// resolverZones returns the DNS servers by zone (--resolver-for).
func (c *Config) resolverZones() (map[string]string, error) {
	zones := make(map[string]string)
	for _, text := range c.ResolverFor {
		zone, server, _ := strings.Cut(text, "=")
		if _, _, err := net.SplitHostPort(server); err != nil || zone == "" {
			return nil, errors.New("--resolver-for must be ZONE=HOST:PORT, such as 10.in-addr.arpa=10.0.0.1:53")
		}
		zone = strings.ToLower(strings.TrimSuffix(zone, "."))
		switch _, twice := zones[zone]; {
		case zone == "":
			return nil, errors.New("--resolver-for is for one zone; --resolver names the server of all names")
		case twice:
			return nil, fmt.Errorf("--resolver-for names two servers of %s", zone)
		}
		zones[zone] = server
	}
	return zones, nil
}

// checkMail checks the settings for incoming and outgoing mail.
func (c *Config) checkMail() error {
	if c.Resolver != "" {
		if _, _, err := net.SplitHostPort(c.Resolver); err != nil {
			return errors.New("--resolver must be HOST:PORT, such as 127.0.0.1:53")
		}
	}
	if _, err := c.resolverZones(); err != nil {
		return err
	}
	if c.SMTPPort < 1 || c.SMTPPort > 65535 {
		return errors.New("--smtp-port must be from 1 to 65535")
	}
	if err := c.checkPostmaster(); err != nil {
		return err
	}
	if c.MXMessages < 0 || c.MXUnknown < 0 {
		return errors.New("--mx-messages-per-hour and --mx-unknown-per-hour must not be negative")
	}
	if c.MaxQuotaMB < 1 || c.MaxQuotaMB > 1<<30 {
		return fmt.Errorf("--max-quota-mb must be from 1 to %d", 1<<30)
	}
	if c.MaxFolderMessages < 0 || c.MaxFolderMessages > mailbox.MaxMessages {
		return fmt.Errorf("--max-messages-per-folder must be from 1 to %d", mailbox.MaxMessages)
	}
	if c.MaxFolders < 0 || c.MaxFolders > maxFolders {
		return fmt.Errorf("--max-folders-per-mailbox must be from 1 to %d", maxFolders)
	}
	if c.MaxConnections < 0 || c.MaxMessages < 0 || !(c.MaxRate >= 0 && c.MaxRate <= 1e6) {
		return errors.New("--max-connections-per-host, --max-messages-per-connection and --max-rate-per-host must not be negative")
	}
	return nil
}

// maxFolders bounds --max-folders-per-mailbox: to create a folder reads all of them.
const maxFolders = 100_000

// errNoPostmaster is the error of serve without --postmaster, which doctor reports too. Other
// commands don't need it.
var errNoPostmaster = errors.New("--postmaster is required: give the operator's e-mail address, a mailbox here or an address elsewhere")

// checkPostmaster rejects an address whose mail would come back to the postmaster.
func (c *Config) checkPostmaster() error {
	if c.Postmaster == "" {
		return nil
	}
	a, err := address.Parse(c.Postmaster)
	if err != nil {
		return errors.New("--postmaster must be an e-mail address, such as you@example.com")
	}
	if a.Domain == c.Host || a.Domain == "bounces."+c.Host {
		return fmt.Errorf("--postmaster must not be at %s: mail to that name goes to --postmaster itself; give a mailbox on a domain here, or an address elsewhere", a.Domain)
	}
	return nil
}

const (
	maxLease               = 5 * time.Minute
	maxDatabaseConnections = 10_000
)

// checkNode checks the settings of this node.
func (c *Config) checkNode() (err error) {
	if c.DatabaseWait < time.Second || c.DatabaseWait > time.Minute {
		return errors.New("--database-wait must be from 1s to 1m")
	}
	if c.DatabaseConnections != 0 && (c.DatabaseConnections < db.MinConns || c.DatabaseConnections > maxDatabaseConnections) {
		return fmt.Errorf("--database-connections must be from %d to %d, or 0 for the default", db.MinConns, maxDatabaseConnections)
	}
	if c.Drain <= 0 {
		return errors.New("--drain must be a time such as 30s")
	}
	if c.Lease < 3*time.Second || c.Lease > maxLease {
		return errors.New("--lease must be from 3s to 5m")
	}
	if c.Database == "sqlite" { // a renewal waits for the current commit: a client may move 250,000 messages in one
		c.Lease = maxLease
	}
	if c.Node == "" {
		if c.Node, err = os.Hostname(); err != nil {
			return fmt.Errorf("--node is needed: %w", err)
		}
	}
	return nil
}

// checkRemotes checks the settings of remote servers and trusted networks.
func (c *Config) checkRemotes() error {
	_, forwarders := c.trustedForwarders()
	_, filter := c.newSpamFilter(nil, nil)
	_, blockLists := c.blockLists()
	_, proxies := parsePrefixes("--proxy-from", c.ProxyFrom)
	_, httpProxies := parsePrefixes("--http-proxy-from", c.HTTPProxyFrom)
	_, relay := c.smartHost()
	_, private := c.privateNetworks()
	_, webhooks := c.webhookNetworks()
	_, roots := c.trustedRoots()
	return cmp.Or(forwarders, filter, blockLists, proxies, httpProxies, relay, private, webhooks, roots)
}

// trustedRoots returns the certificate authorities for remote servers; nil means the system's.
func (c *Config) trustedRoots() (*x509.CertPool, error) {
	if c.TrustRoots == "" {
		return nil, nil
	}
	pool, err := x509.SystemCertPool()
	if err != nil { // the system has none
		pool = x509.NewCertPool()
	}
	return pool, addRoots(pool, "--trust-roots", c.TrustRoots)
}

// addRoots adds the certificates in the file that a setting names.
func addRoots(pool *x509.CertPool, setting, file string) error {
	pem, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("%s: %w", setting, err)
	}
	if !pool.AppendCertsFromPEM(pem) {
		return fmt.Errorf("%s: the file holds no certificate", setting)
	}
	return nil
}

// smartHost returns the smart host for outside mail; nil for none.
func (c *Config) smartHost() (*route.SmartHost, error) {
	if c.Relay == "" {
		return nil, nil
	}
	u, err := url.Parse(c.Relay)
	if err != nil || u.Host == "" || u.Port() == "" || (u.Scheme != "smtp" && u.Scheme != "smtps") {
		// The error doesn't repeat the URL, as it may hold a password.
		return nil, errors.New("--relay must look like smtp://user:password@host:port, or smtps:// for TLS from the start")
	}
	return route.ParseSmartHost(u)
}

// usesSmartHost reports whether all outside mail goes through a smart host.
func (c *Config) usesSmartHost() bool { return c.Relay != "" }

// privateNetworks returns the private networks that the service may connect to.
func (c *Config) privateNetworks() ([]netip.Prefix, error) {
	return parsePrefixes("--allow-private", c.AllowPrivate)
}

// webhookNetworks returns the networks, beside the Internet, that webhooks may be sent to. dev
// includes loopback.
func (c *Config) webhookNetworks() ([]netip.Prefix, error) {
	list := c.WebhookAllow
	if c.Dev {
		list = append([]string{"127.0.0.0/8", "::1/128"}, list...)
	}
	return parsePrefixes("--webhook-allow", list)
}

func parsePrefixes(setting string, texts []string) (list []netip.Prefix, err error) {
	for _, s := range texts {
		p, err := netip.ParsePrefix(s)
		if err != nil {
			return nil, fmt.Errorf("%s must be networks such as 10.0.0.0/8", setting)
		}
		list = append(list, p.Masked())
	}
	return list, nil
}

// databaseURL returns the URL for db.Open.
func (c *Config) databaseURL() string {
	if c.Database == "sqlite" {
		return "sqlite:" + filepath.Join(c.Data, datadir.DatabaseFile)
	}
	return c.Database
}
