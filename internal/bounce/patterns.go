// SPDX-License-Identifier: Apache-2.0

package bounce

// pattern is a set of phrases with one meaning. "*" matches anything.
type pattern struct {
	subtype string
	phrases []string // normalized text
	weight  weight
}

// weight is how much a phrase counts against a code.
type weight uint8

const (
	weightNormal   weight = iota
	weightAlways          // regardless of code and stage: the phrase has no other meaning
	weightLow             // except against a code for a bad address
	weightFallback        // only without a meaningful code
)

// patterns are tried in order. Those about the sender or the message come before those about the
// recipient, because such replies name the recipient, too. The comment after each line names the
// hosts that use it.
var patterns = []pattern{
	{subtype: SenderRejected, weight: weightAlways, phrases: []string{
		// A sender call-out quotes what the sender's host says about the sender, in words that mean
		// the recipient below. Exim uses "verification failed for", "called:" and the like only for
		// senders.
		"sender verif", "sender callback", "sender call-out", "sender callout", "sender address verif", "sender address callback", "verification failed for", "verification failed while checking", "callback setup failed",
		"called: * sent: rcpt to:", "verify sender", "verify the sender", "verifying sender", "verifying the sender", "sender address rejected", "sender rejected", "sender unknown", "unknown sender",
		"invalid sender", "bad sender", "sender denied", "sender blocked", "sender mailbox", "sender account", "sender user", "sender address", "sender's address", "sender could not", "sender cannot",
		"sender does not exist", "sender doesn't exist", "sender not ", "envelope sender", "envelope-from", "envelope from address", "return path", "return-path", "reverse path", "reverse-path", "mail from address", "originator",
		"outgoing mail from", "outgoing email from", "sending suspended", "sending is suspended", "sending disabled", "sending is disabled", // from our relay host
		"absenderadresse", "absender existiert", "absender unbekannt", "unbekannter absender", "ungultiger absender", "absender nicht", "absender wurde", "de l'expediteur", "expediteur n'existe", "expediteur inconnu", "expediteur invalide", "expediteur refuse", "emetteur invalide", "emetteur inconnu",
		"el remitente no", "del remitente", "remitente desconocido", "remitente inexistente", "remitente invalido", "o remetente nao", "do remetente", "remetente desconhecido", "remetente inexistente", "remetente invalido",
		"il mittente non", "del mittente", "mittente sconosciuto", "mittente inesistente", "mittente non valido", "onbekende afzender", "afzender bestaat niet", "отправитель не", "адрес отправителя", "发件人不存在", "发件人地址", "寄件者不存在", "送信者が存在", "送信元アドレス",
	}},
	{subtype: NoMailbox, weight: weightAlways, phrases: []string{
		"doesn't have a * account", "does not have a * account", // Yahoo, after DATA too
		"account that you tried to reach does not exist", // Gmail
		"lpn007_416", "ofr_416", "ouk_416", "_416 ", // Orange, Wanadoo
		"resolver.adr.recipnotfound", "resolver.adr.recipientnotfound", "resolver.adr.exrecipnotfound", // Exchange
		"recipient address rejected: user unknown in", // Postfix, at RCPT only
	}},
	{subtype: NoDomain, weight: weightAlways, phrases: []string{
		"account or domain may not exist", // cPanel
		"illegal host/domain name found",  // Sun Messaging Server
	}},
	{subtype: NoMail, weight: weightAlways, phrases: []string{
		"host does not accept mail", // sendmail, for a null MX (RFC 7505), with the code for the sender's
	}},
	{subtype: SystemTrouble, phrases: []string{"greylist", "graylist", "grey list", "grey-list"}},
	{subtype: Refused, phrases: []string{"blocked by the recipient", "blocked by recipient"}},
	{subtype: Unreachable, phrases: []string{"host not found, try again"}},                                                                                 // Postfix: the name server did not answer
	{subtype: SystemTrouble, weight: weightAlways, phrases: []string{"procmail:", "maildrop:", "command died with status", "unix mailer", "mailer error"}}, // Postfix, sendmail: a local program failed
	{subtype: MailboxFull, phrases: []string{
		"mailbox full", "mailbox is full", "mailbox has exceeded", "full mailbox", "mailbox size limit exceeded", // many
		"over quota", "overquota", "over the quota", "quota exceeded", "exceeded quota", "exceeded his quota", "quota exceed", "exceeding their quota", // Postfix, Courier, Gmail
		"exceeded storage allocation", "exceeded its storage", // RFC 5321 §4.2.3
		"over disk quota", "disk quota", "disc quota", "storage quota", "mailbox quota", "quota violation", "user quota", "diskquota",
		"mailbox exceeded the local limit", "maximum allowed storage", "over the allowed quota", "mailfolder is full", // Cyrus, Exchange, Dovecot
		"not enough storage space", "does not have enough space", "insufficient disk space", "not enough disk space", "not sufficient disk space", "no space left",
		"mailbox too big", "exceeds allowed size", "mail file size exceeds", "space has been used up", "too much mail data", // QQ, docomo
		"boite du destinataire pleine", "boite aux lettres pleine", "casella piena", "buzon lleno", "postfach ist voll", "postfach voll", // Orange, Telefónica, T-Online
		"too many messages on the server", "maildir over quota", "exceeded the mailbox", "has exceeded their storage", "inbox is full", "inbox full", "out of storage space",
		"resolver.rst.mbxfull", "ex_quota", "quotaexceeded", "mail box full", "mail-box full", "mailbox limit", "容量が一杯", "メールボックスがいっぱい",
	}},
	{subtype: MessageTooLarge, phrases: []string{
		"message size exceeds", "message too large", "message too big", "message file too big", "message is too large", "exceeds size limit", "size limit exceeded", // Postfix, sendmail
		"exceeded maximum inbound message size", "maximum message size", "max message size", "message length exceeds", "exceeds the maximum size", "line limit exceeded",
		"message header size", "exceeds maximum size", "too large to be", "size limit", "message size limit", "recipsizelimit", "sendsizelimit", "taille limite du message",
	}},
	{subtype: RateLimited, phrases: []string{
		"too many connections", "too many concurrent", "connection rate limit", "rate limit", "rate-limit", "try again slower", "too many messages", // many
		"at a rate that prevents", "too many recipients", "maximum connection limit", "per-domain connection limit", "max emails per hour", "daily message quota",
		"maximum sending rate", "receiving limit", "receive limit", "receiving mail too", "receiving too many", "receiving messages too", "receiving email too", "too quickly", "too fast", "message threshold", "messages per", "mails per", "emails per",
		"hourly limit", "daily limit", "per hour", "per day", "frequency limit", "sending limit", "volume limit", "exceeded the limit of messages", "excessive volume", "unexpected volume", "too many smtp sessions", "trop de connexions", "too many errors from your ip", "throttl", "too many mails", "unusual rate",
	}},
	{subtype: MailboxMoved, phrases: []string{
		"has been replaced by", "user has moved", "has moved to", "address has changed", "new address is", "is no longer at this address", "mailbox has moved",
	}},
	{subtype: Authentication, phrases: []string{
		"spf", "dkim", "dmarc", "sender policy framework", "sender id", "reverse dns", "rdns", "ptr record", "ptr records", "no ptr", // many
		"cannot find your hostname", "find your reverse hostname", "cannot resolve your address", "ip name lookup failed", "reverse lookup", "unverifiable sending",
		"mismatches client ip", "unresolvable relay host name", "forward dns entry", "authentication checks", "is unauthenticated", "not authenticated",
		"authentication required", "authentication is required", "authentication failure", "authentication failed", "authentication turned on", "dns ptr", "must be authenticated",
		"unauthenticated", "authentication credentials", "verification failure", "name lookup failure for", "requires authentication",
	}},
	{subtype: Blocked, phrases: []string{
		"spamhaus", "spamcop", "dnsbl", " rbl", "sorbs", "abuseat", "barracudacentral", "uceprotect", "dsbl.org", "njabl", "surbl", "uribl", "mail-abuse", // the lists
		"blacklist", "black list", "blocklist", "block list", "blocked using", "blocked by", "blocked for", "blocked - see", "was blocked", "is blocked", "been blocked", "ip blocked",
		"reputation", "banned", "denylist", "poor email", "is listed in", "is listed at", "sender domain listed", "on our block", "bad sender ip", "dynamic ip", "dynamic/zombied", "open proxy",
		"hosts with dynamic", "ip address is listed", "sending ip", "server access forbidden", "access denied, please try again", "not accepting mail from your ip",
		"confirm this mail server", "requires confirmation", "unwanted messages", "too many spams", "user complaints", "service refused",
		"client host rejected", "helo command rejected", "go away", "no access from mail server", "connections will not be accepted", "connection refused by",
		"network not allowed", "refused - see", "you are not allowed to connect", "connection dropped", "reset by peer", "closing transmission channel",
		"remotehost looks", "looks suspiciously", "bad helo", "invalid ip for", "access denied. your ip", "ip address has been", "your access ip", "suspicious",
		"no longer accepts mail from", "esmtp not accepting", "not accept mail from your", "domain does not exist:", "smtp service not available",
	}},
	{subtype: ContentRejected, phrases: []string{
		"spam", "junk", "unsolicited", "bulk mail", "bulk email", "bulk e-mail", "virus", "malware", "infected", "phishing", "trojan", // many
		"content filter", "content reject", "content denied", "banned content", "unacceptable content", "prohibited", "executable", "attachment",
		"message filtered", "mail appears to be", "likely unsolicited", "classified as", "mail rejete", "message content", "mail content", "message refused", "message rejected",
		"not rfc 5322 compliant", "rfc 5322", "rfc 2822", "rfc 822", "rfcmessagenoncompliant", "duplicate header", "multiple * header", "header error", "mime ", "mime-", "mime:",
		"missing header", "invalid header", "bare lf", "improper use of 8-bit", "header are not accepted", "recurrent pattern", "blocked due to", "message bounced due to",
		"suspected", "554 5.7.0 reject", "threat", "encrypted", "contains a url", "html content",
	}},
	{subtype: Policy, phrases: []string{ // restrictions on senders
		"from outside", "outside of the organi", "outside the organi", "outside your organi", "outside our organi", "external sender", "external mail", "external email", "external e-mail", "internal sender", "internal use", "internal mail", "internal email",
		"accept mail from", "accepts mail from", "accept email from", "accept e-mail from", "accept messages from", "accepting mail from", "accepting messages from", "accepting email from", "accepts messages from",
		"authorized sender", "authorised sender", "allowed sender", "approved sender", "restricted to",
	}},
	{subtype: SenderRejected, phrases: []string{
		"sender was rejected", "sender is not", // Postfix, Exim
		"sender email", "sender e-mail", "sender's ", "sender domain", "sender host", "not allowed to send", "not permitted to send", "your account", "your domain", "your sending", "unroutable sender", "domain of sender", "domain of the sender", "from address", "mail from command", "mail from not", "mail from:<",
		"empty envelope sender", "null sender", "batv", "bouncedeny", "backscatter", "bogus mail", "from: domain", "third-party dsn", "returned mail not accepted",
		"email address is not verified", "not in the list of allowed senders", "senderfilter", "not pre-approved", "list of senders", "emetteur invalide", "senders not allowed",
		"the sender", "your email address", "rule imposed mailbox access", "you are not allowed to post", "not subscribed", "members-only", "closed mailing list", "not a member",
		"sending this from a different address", "fully qualified email address", "purported responsible address", "unsigned dsn",
		"registered gateway user", "expired email address",
	}},
	{subtype: RelayDenied, phrases: []string{
		"relay access denied", "relaying denied", "relay denied", "relay not permitted", "relaying not permitted", "unable to relay", "relay operation rejected", "as a relay", // many
		"not permitted to relay", "not allowed to relay", "no relaying", "we do not relay", "we don't handle mail for", "rcpthosts", "rcpthost", "relaying mail to", "relaying",
		"open relay", "insecure mail relay", "relaying prohibited", "not a gateway", "not local host", "relay prohibited", "specified domain is not allowed", "relay",
	}},
	{subtype: NoMail, phrases: []string{
		"nullmx", "null mx", "does not accept mail", "does not accept email", "doesn't accept mail", "mail receiving disabled", "no mx record found for domain", // RFC 7505, iCloud, Yahoo
		"no route for current request", "smtp protocol returned a permanent error", "name server: .: host not found", "no smtp service",
	}},
	{subtype: MailboxDisabled, phrases: []string{
		"account has been disabled", "account is disabled", "account disabled", "mailbox disabled", "mailbox is disabled", "temporarily disabled", "mailbox is frozen", "account that you tried to reach is disabled", // Yahoo, Google
		"has been suspended", "is suspended", "currently suspended", "user suspended", "suspend", "deactivated", "account is locked", "temporary locked", "temporarily inactive", "user is terminated",
		"inactive account", "account is inactive", "invalid/inactive user", "inactive user", "mailbox inactive", "archived recipient", "destinataire archive", "disabled or discontinued",
		"extended inactivity", "account expired", "account has expired", "user or domain is disabled", "has been disabled", "address no longer accepts mail", "account is not active",
		"unavailable or access denied", "recipient suspend", "mailbox locked", "account closed", "no longer available", "not been active", "account blocked", "on hold",
	}},
	{subtype: Refused, phrases: []string{
		"550 : user unknown", "550: : user unknown", // KDDI (au), after the message: the recipient's filter
		"refused due to recipient preferences", "not accepting any mail", "only accepting mail from specific", "user refuses to receive", "refuse to receive mail", "rejected due to user rules",
		"account is protected by", "bounced address", "resolver.rst.notauthorized", "has restricted sms", "user reject", "not found recipient account",
	}},
	{subtype: NoDomain, phrases: []string{
		"host or domain name not found", "host not found", "unknown host", "host unknown", "no such domain", "domain does not exist", "domain must exist", "name or service not known", // Postfix, sendmail
		"domain not found", "unknown domain", "unrouteable address", "unroutable address", "couldn't find any host", "no such host", "domain name not found", "nonexistentdomain", "nonexistent domain", // Exim, qmail
		"domain is not reachable", "domain mentioned in email address is unknown", "nxdomain", "name service error for name=* host not found", "bad destination host", "domain unknown",
		"dns records for * could not be found", "account or domain may not exist", "non-existent domain", "domain * not found", "host * not found", "bad host/domain",
		"find a mail exchanger", "domaine inconnu", "550 5.4.4 invalid domain", "host unreachable",
	}},
	{subtype: NoMailbox, phrases: []string{
		"user unknown", "unknown user", "user not found", "user not known", "user does not exist", "user doesn't exist", "user not exist", "no such user", "not a known user", // sendmail, Postfix
		"unknown recipient", "recipient unknown", "recipient not found", "no such recipient", "recipient does not exist", "recipient not exist", "invalid recipient", "not a valid recipient", "recipient not ok",
		"no such mailbox", "no mailbox", "mailbox not found", "mailbox unavailable", "mailbox does not exist", "mailbox * does not exist", "unknown mailbox", "mailbox invalid", "invalid mailbox", "mailbox not present",
		"mailbox is unavailable", "mailbox unavaiable", "not a valid mailbox", "mailbox unknown", "no mail box", // qmail, RFC 5321
		"no such address", "address unknown", "unknown address", "address does not exist", "address not found", "email address could not be found", "invalid address", "bad address", "address is not valid",
		"no such person", "no one at this address", "no account by that name", "unknown account", "account unknown", "account does not exist", "account not found", "no such account", "account unavailable",
		"does not exist", "doesn't exist", "doesn't have a * account", "does not have a * account", "not listed in", "not in name directory", "no * in name directory", "not found in directory", // Yahoo, Domino
		"unknown local part", "unknown local-part", "unknown or illegal alias", "unknown e-mail address", "unknown email address", "non-existent user", "non existent user", "nonexistent user",
		"user (*) unknown", "user * was not found", "user * not found", "recipient * was not found", "recipient address rejected: user", "recipient address rejected: unknown", "recipient address rejected: invalid", "recipient address rejected: no such", "recipient address rejected: undeliverable", "rejected recipient", "not a local address",
		"is not an active address", "not a valid user", "badrcptto", "badrecipientto", "validrcptto", "no valid recipients", "no valid recipient", "recipient is not accepted", "recipient not accepted",
		"recipient is not local", "destination addresses were unknown", "following recipients was undeliverable", "resolver.adr.recipnotfound", "resolver.adr.recipientnotfound", "resolver.adr.recipient", "recipientnotfound",
		"address not present in directory", "can't accept user", "address invalid", "invalid final delivery userid", "542 * rejected", "please check if address is correct", "invalid user", "wrong or no longer valid", "missing home directory", "user not active", "bad recipient",
		"not our customer", "user * does not exist", "cannot find * recipient", "this address no longer", "list not found", "addressee unknown", "unknown addressee",
		"recipient verify failed", "recipient verification failed", "callout verification failed", "no account at this", "account not available", "not have a user by", "no one here by that", "nobody here by that", // Exim and others
		"does not have an account", "doesn't have an account", "mailbox is not found", "no valid mail box", "no longer exists", "user not local", "user is not local", "not local mailbox", "unknown mail box", // RFC 5321 §4.2.2 (551)
		"unbekannter benutzer", "unbekannter nutzer", "usuario desconhecido", "caixa postal inexistente", "no encontrado", "nao encontrado", "non esiste", "sconosciuto", "n'existe pas", // German, Portuguese, Spanish, Italian, French
		"nie istnieje", "nie ma takiego", "neexistuje", "finns inte", "findes ikke", "nem letezik", "bulunamad", "찾을 수 없", "존재하지 않", "無此使用者", "不存在", // Polish, Czech, Swedish, Danish, Hungarian, Turkish, Korean, Chinese
		"utilisateur inconnu", "destinataire inconnu", "destinataire invalide", "adresse inconnue", "nessun utente", "utente sconosciuto", "no existe", "usuario desconocido", "usuario inexistente", // French, Italian, Spanish
		"empfanger unbekannt", "unbekannter empfanger", "benutzer unbekannt", "existiert nicht", "nicht gefunden", "onbekende gebruiker", "bestaat niet", "destinatario inexistente", "nao existe", // German, Dutch, Portuguese
		"見つかりません", "存在しません", "宛先不明", "用户不存在", "收件人不存在", "地址不存在", "пользователь не найден", "не существует", "no such local user", "not known at this", "name is not found", "email name is not found",
		"recipient's e-mail address was not found", "wasn't found at", "couldn't be found", "could not be found", "can't be found", "not exist",
	}},
	{subtype: Policy, phrases: []string{
		"policy", "policies", "not authorized", "not authorised", "unauthorized", "not permitted", "administrative prohibition", "administratively", "organizational settings", "organisational settings", "mass mailer",
		"not allowed", "prohibits", "captcha",
	}},
	{subtype: Policy, weight: weightLow, phrases: []string{"access denied", "denied", "forbidden"}},
	{subtype: Expired, phrases: []string{
		"retry timeout exceeded", "retry time not reached", "in the queue too long", "delivery expired", "message expired", "delivery time expired", "message timed out", "queue too long", "expired", // Exim, qmail, OpenSMTPD
		"timed out", "timeout", "giving up on", "could not be delivered for", "have been failing for", "multiple retries", "did not respond", "not been collected", "allowed queue period", "undeliverable for", "too long in queue",
		"been delayed", "could not deliver for the last", "delivery failed * attempts", "will continue to be", "warning message",
	}},
	{subtype: Unreachable, phrases: []string{
		"connection refused", "no route to host", "network is unreachable", "network unreachable", "host is unreachable", "could not connect", "connection failed", "unable to connect", "cannot connect", "can't connect",
		"lookup failure", "lookup failed", "name server", "loop", "duplicated message-id", "too many hops", "hop count", "routing", "unable to route", "unrouteable mail domain", "starttls", " tls", "certificate", "dns", "connection was", "lost connection",
		"could not be reached", "did not accept our requests to connect", "host not reachable",
	}},
	{subtype: SystemTrouble, phrases: []string{
		"procmail", "maildrop", "command died", "command failed", "command output", "mailer error", "pipe to", "local configuration error", "server configuration", "system config", "internal error", "internal server error",
		"local error", "temporary local problem", "queue file write error", "can't create", "cannot create", "service unavailable", "service currently unavailable", "out of memory", "system error", "i/o error", "temporary failure",
		"misconfigured", "system full", "mdb", "error while being processed", "temporar", "try again",
	}},
	{subtype: ProtocolTrouble, phrases: []string{
		"syntax error", "command not implemented", "bad sequence", "improper sequence", "protocol violation", "unrecognized command", "not implemented", "protocol error", "command unrecognized", "parameters not",
	}},
	{subtype: NoMailbox, weight: weightFallback, phrases: []string{"address rejected", "recipient rejected"}},
}
