// SPDX-License-Identifier: Apache-2.0

package clientsetup

import "encoding/xml"

// AddressPlaceholder is a placeholder that clients replace with their user's address.
const AddressPlaceholder = "%EMAILADDRESS%"

type clientConfig struct {
	XMLName  xml.Name `xml:"clientConfig"`
	Version  string   `xml:"version,attr"`
	Provider struct {
		ID       string       `xml:"id,attr"`
		Domain   string       `xml:"domain"`
		Name     string       `xml:"displayName"`
		Short    string       `xml:"displayShortName"`
		Incoming []mailServer `xml:"incomingServer"`
		Outgoing []mailServer `xml:"outgoingServer"`
	} `xml:"emailProvider"`
}

type mailServer struct {
	Type           string `xml:"type,attr"`
	Host           string `xml:"hostname"`
	Port           uint16 `xml:"port"`
	Socket         string `xml:"socketType"`
	Authentication string `xml:"authentication"`
	Username       string `xml:"username"`
}

// Autoconfig returns the configuration file for Thunderbird and others (Mozilla's autoconfiguration
// format, version 1.1). Without an address, the client inserts that of its user.
func (s *Service) Autoconfig(domain, address string) ([]byte, error) {
	if address == "" {
		address = AddressPlaceholder
	}
	settings := s.Settings(address, "")
	servers := func(kind string, all []Endpoint) (list []mailServer) {
		for _, e := range all {
			socket := "SSL"
			if e.Security == STARTTLS {
				socket = "STARTTLS"
			}
			list = append(list, mailServer{Type: kind, Host: e.Host, Port: e.Port, Socket: socket, Authentication: "password-cleartext", Username: settings.Username})
		}
		return list
	}
	c := clientConfig{Version: "1.1"}
	p := &c.Provider
	p.ID, p.Domain, p.Name, p.Short = domain, domain, domain, domain
	p.Incoming, p.Outgoing = servers("imap", settings.Incoming), servers("smtp", settings.Outgoing)
	return marshalXML(c)
}

func marshalXML(v any) ([]byte, error) {
	text, err := xml.MarshalIndent(v, "", "  ")
	return append([]byte(xml.Header), append(text, '\n')...), err
}
