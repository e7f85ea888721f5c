package builtin_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"image"
	"image/png"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/net/dns/dnsmessage"

	"hob"
	"hob/internal/builtin"
	"hob/internal/egress"
)

// insideNamespace marks the process that runs in a network of its own.
const insideNamespace = "HOB_TEST_CANARY_NAMESPACE"

// TestCanaries_NoToolReachesASpecialAddress gives every tool that reaches the network every hostile address we know, in a
// network namespace where each address there is leads to a listener: what is not refused is heard.
func TestCanaries_NoToolReachesASpecialAddress(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestCanariesInside$", "-test.v", "-test.timeout=120s")
	cmd.Env = append(os.Environ(), insideNamespace+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	if os.Getuid() != 0 { // anybody may have a namespace of networks inside one of users, where the kernel allows it
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	out, err := cmd.CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("canaries heard nothing in ")) {
		t.Errorf("in a network namespace (needs root, or unprivileged user namespaces): %v\n%s", err, out)
	}
}

// canaries are listeners on every address of the namespace. A connection to a public one is the internet of these tests.
type canaries struct {
	mu      sync.Mutex
	heard   map[string]int // by address and port, but for public ones at web ports
	public  atomic.Int32
	picture []byte
}

// hear notes a connection by the address that was dialled.
func (c *canaries) hear(conn net.Conn) {
	at, err := netip.ParseAddrPort(conn.LocalAddr().String())
	if err != nil {
		return
	}
	at = netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
	if at.Addr() == publicSite && (at.Port() == 80 || at.Port() == 443) {
		c.public.Add(1)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.heard[at.String()]++
}

func (c *canaries) take() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	heard := c.heard
	c.heard = map[string]int{}
	return heard
}

// ServeHTTP is every web server: /to leads elsewhere, /page shows an image from elsewhere, /v1/scrape is Firecrawl.
func (c *canaries) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	to := r.URL.Query().Get("u")
	switch {
	case r.URL.Path == "/to":
		w.Header()["Location"] = []string{to}
		w.WriteHeader(http.StatusFound)
	case r.URL.Path == "/page":
		w.Header().Set("Content-Type", "text/markdown")
		_, _ = fmt.Fprintf(w, "![x](%s)", to)
	case strings.HasSuffix(r.URL.Path, ".png"):
		_, _ = w.Write(c.picture)
	case r.URL.Path == "/v1/scrape":
		_, _ = io.WriteString(w, `{"success":true,"data":{"markdown":"canary"}}`)
	default:
		_, _ = io.WriteString(w, "canary")
	}
}

// publicSite is an address that is public, and leads to the canaries in here like any other.
var publicSite = netip.MustParseAddr("93.184.215.14")

// canaryPorts are those on which somebody listens: the web's, and services worth an attack.
var canaryPorts = []int{22, 80, 443, 2375, 3000, 5432, 6379, 8000, 8080, 8443, 8787, 9200, 11434}

// specials are addresses that nobody may reach without an entry of the operator's.
var specials = []string{
	"127.0.0.1", "127.8.8.8", "0.0.0.0", "10.1.2.3", "172.16.5.5", "172.31.255.254", "192.168.7.7", "169.254.169.254", "169.254.1.1",
	"100.64.0.9", "100.100.100.200", "168.63.129.16", "192.0.0.8", "192.0.2.1", "198.18.0.1", "198.51.100.7", "203.0.113.9", "224.0.0.1",
	"239.255.255.250", "240.0.0.1", "255.255.255.255", "[::1]", "[::]", "[fd00::1]", "[fc00::1]", "[fe80::1]", "[fec0::1]", "[ff02::1]",
	"[2001:db8::1]", "[fd00:ec2::254]", "[100::1]", "[::ffff:127.0.0.1]", "[::ffff:10.1.2.3]", "[::ffff:a9fe:a9fe]", "[::127.0.0.1]",
	"[64:ff9b::7f00:1]", "[64:ff9b::a9fe:a9fe]", "[64:ff9b:1::a01:203]", "[2002:7f00:1::]", "[2002:a9fe:a9fe::1]", "[2001:0:a9fe:a9fe::1]",
}

// spellings are hosts that some readers take for a special address.
var spellings = []string{
	"localhost", "LOCALHOST.", "2130706433", "0x7f000001", "0x7f.0.0.1", "0177.0.0.1", "017700000001", "127.1", "127.0.1", "0",
	"2852039166", "0xa9fea9fe", "169.254.43518", "①②⑦.⓪.⓪.①", "127。0。0。1", "１２７.0.0.1", "ⓛⓞⓒⓐⓛⓗⓞⓢⓣ", "%31%32%37.0.0.1", "127.0.0.1%00.example.com",
	"user@127.0.0.1", "example.com@127.0.0.1", "example.com:80@127.0.0.1", "127.0.0.1:80@", "[::1%25lo]", "[fe80::1%25lo]", "127.0.0.1.", "10.1.2.3.",
	"rebind.test", "inside.test", "mixed.test", "metadata.google.internal",
}

// hostile are all addresses in the form that a model would write.
func hostile() []string {
	var all []string
	for _, host := range slices.Concat(specials, spellings) {
		for _, form := range []string{"http://%s/", "http://%s:8080/x", "https://%s/", "http://%s:6379/"} {
			all = append(all, fmt.Sprintf(form, host))
		}
	}
	return append(all, "http:\\\\127.0.0.1\\", "http://127.0.0.1\\@example.com/", "http://example.com\\@127.0.0.1/", "//127.0.0.1/", "http:127.0.0.1",
		"http:///127.0.0.1/", "gopher://127.0.0.1:6379/_x", "file:///etc/passwd", "http://"+publicSite.String()+":8080/", "http://"+publicSite.String()+":22/",
		" http://127.0.0.1/", "http://127.0.0.1#@example.com/", "http://127.0.0.1?@example.com/", "ftp://127.0.0.1/", "unix:///var/run/docker.sock")
}

// TestCanariesInside is the other half: it runs in the namespace, and does nothing outside of it.
func TestCanariesInside(t *testing.T) {
	if os.Getenv(insideNamespace) == "" {
		return // TestCanaries_NoToolReachesASpecialAddress starts it where there is something to see
	}
	everywhere(t)
	c := &canaries{heard: map[string]int{}}
	var b bytes.Buffer
	if err := png.Encode(&b, image.NewGray(image.Rect(0, 0, 2, 2))); err != nil {
		t.Fatal(err)
	}
	c.picture = b.Bytes()
	c.listen(t)
	resolver := rebinding(t)
	tried := 0
	for name, open := range tools(c) {
		before := c.public.Load()
		try := open(builtin.Deps{Models: (&eyes{}).open}, &resolver, nil)
		for _, u := range hostile() {
			tried++
			try(t, u)
			if heard := c.take(); len(heard) > 0 {
				t.Errorf("%s with %s reached %v", name, u, heard)
			}
		}
		if try(t, "http://"+publicSite.String()+"/ok.png"); c.public.Load() == before {
			t.Errorf("%s reaches nothing at all: it shows nothing", name)
		}
		entry, err := egress.ParseAllow("10.1.2.3:8080")
		if err != nil {
			t.Fatal(err)
		}
		try = open(builtin.Deps{Models: (&eyes{}).open}, &resolver, entry)
		for _, u := range append(hostile(), "http://10.1.2.3:8080/ok.png") {
			tried++
			try(t, u)
		}
		heard := c.take()
		if heard["10.1.2.3:8080"] == 0 || len(heard) != 1 {
			t.Errorf("%s with an entry for 10.1.2.3:8080 reached %v", name, heard)
		}
	}
	t.Logf("canaries heard nothing in %d tries", tried)
}

// attempt sends a tool to an address.
type attempt func(t *testing.T, address string)

// tools are the ways in which an address of somebody else's becomes a connection.
func tools(c *canaries) map[string]func(d builtin.Deps, r *net.Resolver, allow []egress.Entry) attempt {
	call := func(t *testing.T, d builtin.Deps, a hob.AssignedTool, args string) {
		s := builtin.New(d)
		runners, _, err := s.Tools(t.Context(), grant(a))
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range runners {
			if _, err := r.Call(t.Context(), callOf(r, args)); err != nil {
				t.Error(err)
			}
		}
	}
	arg := func(address string) string {
		return string(must(json.Marshal(map[string]any{"url": address, "include_images": true})))
	}
	plain := func(address string) string { return string(must(json.Marshal(map[string]string{"url": address}))) }
	guard := func(r *net.Resolver, allow []egress.Entry) *egress.Guard {
		return egress.New(egress.Config{Allow: allow, Resolver: r, ConnectTimeout: time.Second})
	}
	through := func(path, address string) string {
		return "http://" + publicSite.String() + path + "?u=" + url.QueryEscape(address)
	}
	make1 := func(use func(t *testing.T, d builtin.Deps, address string)) func(builtin.Deps, *net.Resolver, []egress.Entry) attempt {
		return func(d builtin.Deps, r *net.Resolver, allow []egress.Entry) attempt {
			d.Egress = guard(r, allow)
			return func(t *testing.T, address string) { use(t, d, address) }
		}
	}
	return map[string]func(builtin.Deps, *net.Resolver, []egress.Entry) attempt{
		"http_request": make1(func(t *testing.T, d builtin.Deps, u string) { call(t, d, assign("http_request", ""), plain(u)) }),
		"http_request after a redirect": make1(func(t *testing.T, d builtin.Deps, u string) {
			call(t, d, assign("http_request", `{"allowed_hosts":["`+publicSite.String()+`","10.1.2.3:8080","*.test"]}`), plain(through("/to", u)))
			call(t, d, assign("http_request", ""), plain(through("/to", u)))
		}),
		"a custom tool": make1(func(t *testing.T, d builtin.Deps, u string) { call(t, d, assignCustom(customRow(u, "POST"), ""), `{}`) }),
		"a custom tool after a redirect": make1(func(t *testing.T, d builtin.Deps, u string) {
			row := customRow(through("/to", u), "GET")
			row.Config.Endpoint = through("/to", u)
			call(t, d, assignCustom(row, ""), `{}`)
		}),
		"web_scrape": make1(func(t *testing.T, d builtin.Deps, u string) { call(t, d, assign("web_scrape", ""), plain(u)) }),
		"web_scrape after a redirect": make1(func(t *testing.T, d builtin.Deps, u string) {
			call(t, d, assign("web_scrape", ""), plain(through("/to", u)))
		}),
		"an image of a page": make1(func(t *testing.T, d builtin.Deps, u string) {
			call(t, d, assign("web_scrape", ""), arg(through("/page", u)))
		}),
		"the address of an image": make1(func(t *testing.T, d builtin.Deps, u string) {
			call(t, d, assign("web_scrape", ""), plain(strings.TrimSuffix(u, "/")+"/x.png"))
		}),
		"a workspace's Firecrawl": make1(func(t *testing.T, d builtin.Deps, u string) {
			d.Setting = func(_ context.Context, _ hob.WorkspaceID, key string) (string, error) {
				return map[string]string{"FIRECRAWL_API_BASE": u, "FIRECRAWL_API_KEY": "k"}[key], nil
			}
			call(t, d, assign("web_scrape", ""), plain("http://"+publicSite.String()+"/"))
		}),
	}
}

// listen opens the canaries.
func (c *canaries) listen(t *testing.T) {
	t.Helper()
	for _, port := range canaryPorts {
		ln, err := net.Listen("tcp", fmt.Sprintf("[::]:%d", port)) // of both families
		if err != nil {
			t.Fatal(err)
		}
		srv := &http.Server{Handler: c, ReadHeaderTimeout: time.Second, ConnState: func(conn net.Conn, s http.ConnState) {
			if s == http.StateNew {
				c.hear(conn)
			}
		}}
		go func() { _ = srv.Serve(ln) }()
		t.Cleanup(func() { _ = srv.Close() })
	}
}

// rebinding is a resolver at a DNS server that lies: rebind.test is a public address and 127.0.0.1 by turns.
func rebinding(t *testing.T) net.Resolver {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:53")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	go func() {
		asked := 0
		buf := make([]byte, 1500)
		for {
			n, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			var m dnsmessage.Message
			if m.Unpack(buf[:n]) != nil || len(m.Questions) == 0 {
				continue
			}
			q := m.Questions[0]
			m.Header = dnsmessage.Header{ID: m.ID, Response: true, Authoritative: true, RecursionAvailable: true}
			m.Additionals = nil
			record := func(a string) {
				m.Answers = append(m.Answers, dnsmessage.Resource{
					Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class}, Body: &dnsmessage.AResource{A: netip.MustParseAddr(a).As4()},
				})
			}
			if q.Type == dnsmessage.TypeA {
				switch strings.ToLower(q.Name.String()) {
				case "rebind.test.":
					if asked++; asked%2 == 1 {
						record(publicSite.String())
					} else {
						record("127.0.0.1")
					}
				case "mixed.test.":
					record(publicSite.String())
					record("10.9.9.9")
				case "inside.test.", "localhost.":
					record("192.168.7.7")
				case "metadata.google.internal.":
					record("169.254.169.254")
				default:
					m.RCode = dnsmessage.RCodeNameError
				}
			}
			if out, err := m.Pack(); err == nil {
				_, _ = conn.WriteTo(out, from)
			}
		}
	}()
	return net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", "127.0.0.1:53")
	}}
}

// everywhere makes every address of both families one of this machine: the loopback interface is up, and a route of the
// local table leads all to it.
func everywhere(t *testing.T) {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_DGRAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Close(fd) }()
	var up struct {
		name  [syscall.IFNAMSIZ]byte
		flags uint16
		_     [22]byte
	}
	copy(up.name[:], "lo")
	up.flags = syscall.IFF_UP | syscall.IFF_RUNNING
	if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, uintptr(fd), syscall.SIOCSIFFLAGS, uintptr(unsafe.Pointer(&up))); errno != 0 {
		t.Fatalf("set the loopback interface up: %v", errno)
	}
	lo, err := net.InterfaceByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range []byte{syscall.AF_INET, syscall.AF_INET6} {
		addLocalRoute(t, family, lo.Index)
	}
}

// addLocalRoute says over netlink what `ip route add local default dev lo` says.
func addLocalRoute(t *testing.T, family byte, index int) {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_NETLINK, syscall.SOCK_RAW, syscall.NETLINK_ROUTE)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Close(fd) }()
	const header, message, attribute = 16, 12, 8
	m := binary.NativeEndian.AppendUint32(nil, header+message+attribute)
	m = binary.NativeEndian.AppendUint16(m, syscall.RTM_NEWROUTE)
	m = binary.NativeEndian.AppendUint16(m, syscall.NLM_F_REQUEST|syscall.NLM_F_ACK|syscall.NLM_F_CREATE)
	m = append(m, make([]byte, 8)...) // sequence and port
	m = append(m, family, 0, 0, 0, syscall.RT_TABLE_LOCAL, syscall.RTPROT_BOOT, syscall.RT_SCOPE_HOST, syscall.RTN_LOCAL, 0, 0, 0, 0)
	m = binary.NativeEndian.AppendUint16(m, attribute)
	m = binary.NativeEndian.AppendUint16(m, syscall.RTA_OIF)
	m = binary.NativeEndian.AppendUint32(m, uint32(index))
	if err := syscall.Sendto(fd, m, 0, &syscall.SockaddrNetlink{Family: syscall.AF_NETLINK}); err != nil {
		t.Fatal(err)
	}
	answer := make([]byte, 4096)
	n, _, err := syscall.Recvfrom(fd, answer, 0)
	if err != nil || n < header+4 {
		t.Fatalf("netlink: %d bytes, %v", n, err)
	}
	if code := int32(binary.NativeEndian.Uint32(answer[header:])); code != 0 {
		t.Fatalf("add a local route for family %d: %v", family, syscall.Errno(-code))
	}
}
