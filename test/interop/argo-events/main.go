// The handlers of Argo Events' webhook-like event sources, as that project ships them, without Kubernetes:
//
//	unshare --net argo-events FOLDER DELAY
//
// The sources bind all addresses, so it wants a network namespace of its own, and reaches them from outside by one
// unix socket per kind, FOLDER/KIND.sock. It makes FOLDER its root: secrets are read from
// FOLDER/argo-events/secrets/hook/secret, as from a mounted volume. What would go to the event bus goes to standard
// output, one line `KIND<tab>JSON` each, and takes DELAY (as "5ms"). Says "ready" on standard output first. SIGUSR2 takes the bus
// away, and brings it back.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/argoproj/argo-events/pkg/apis/events/v1alpha1"
	"github.com/argoproj/argo-events/pkg/eventsources/common"
	"github.com/argoproj/argo-events/pkg/eventsources/sources/bitbucketserver"
	"github.com/argoproj/argo-events/pkg/eventsources/sources/github"
	"github.com/argoproj/argo-events/pkg/eventsources/sources/gitlab"
	"github.com/argoproj/argo-events/pkg/eventsources/sources/webhook"
	"github.com/argoproj/argo-events/pkg/metrics"
	corev1 "k8s.io/api/core/v1"
)

const firstPort = 12000

var kinds = []string{"webhook", "github", "gitlab", "bitbucketserver"}

// Nobody answers there. GitLab's and Bitbucket's sources check signatures only if they may create the hooks as well; that they
// cannot reach the sender is logged alone.
const nowhere = "http://127.0.0.1:9"

// Each kind answers at /hooks/KIND.
func endpoint(kind string, port int) *v1alpha1.WebhookContext {
	return &v1alpha1.WebhookContext{Endpoint: "/hooks/" + kind, Method: "POST", Port: strconv.Itoa(port), URL: "http://here"}
}

type listener interface {
	StartListening(context.Context, func([]byte, ...common.Option) error) error
}

func source(kind string, at *v1alpha1.WebhookContext) listener {
	secret := &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "hook"}, Key: "secret"}
	counts := metrics.NewMetrics(kind)
	switch kind {
	case "github":
		return &github.EventListener{EventSourceName: kind, EventName: kind, Metrics: counts,
			GithubEventSource: v1alpha1.GithubEventSource{Webhook: at, WebhookSecret: secret}}
	case "gitlab":
		return &gitlab.EventListener{EventSourceName: kind, EventName: kind, Metrics: counts,
			GitlabEventSource: v1alpha1.GitlabEventSource{Webhook: at, AccessToken: secret, SecretToken: secret, GitlabBaseURL: nowhere}}
	case "bitbucketserver":
		return &bitbucketserver.EventListener{EventSourceName: kind, EventName: kind, Metrics: counts,
			BitbucketServerEventSource: v1alpha1.BitbucketServerEventSource{Webhook: at, AccessToken: secret, WebhookSecret: secret,
				BitbucketServerBaseURL: nowhere, Repositories: []v1alpha1.BitbucketServerRepository{{ProjectKey: "a", RepositorySlug: "b"}}}}
	default:
		at.AuthSecret = secret
		return &webhook.EventListener{EventSourceName: kind, EventName: kind, Metrics: counts,
			Webhook: v1alpha1.WebhookEventSource{WebhookContext: *at}}
	}
}

func main() {
	delay, err := time.ParseDuration(os.Args[2])
	check(err)
	check(exec.Command("ip", "link", "set", "lo", "up").Run())
	check(syscall.Chroot(os.Args[1]))
	check(os.Chdir("/"))
	out := bufio.NewWriter(os.Stdout)
	var lock sync.Mutex
	var away atomic.Bool
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGUSR2)
	go func() {
		for range signals {
			away.Store(!away.Load())
		}
	}()
	say := func(line string) {
		lock.Lock()
		defer lock.Unlock()
		fmt.Fprintln(out, line)
		out.Flush()
	}
	for index, kind := range kinds {
		port := firstPort + index
		go func() {
			check(source(kind, endpoint(kind, port)).StartListening(context.Background(), func(data []byte, _ ...common.Option) error {
				time.Sleep(delay)
				if away.Load() {
					return errors.New("the bus is away")
				}
				say(kind + "\t" + string(data))
				return nil
			}))
		}()
		address := fmt.Sprintf("127.0.0.1:%d", port)
		await(address)
		door, err := net.Listen("unix", "/"+kind+".sock")
		check(err)
		go relay(door, address)
	}
	say("ready")
	select {}
}

func await(address string) {
	for {
		if probe, err := net.Dial("tcp", address); err == nil {
			probe.Close()
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// Passes bytes and half-closes both ways.
func relay(door net.Listener, address string) {
	for {
		outer, err := door.Accept()
		check(err)
		inner, err := net.Dial("tcp", address)
		check(err)
		go pass(inner.(*net.TCPConn), outer.(*net.UnixConn))
		go pass(outer.(*net.UnixConn), inner.(*net.TCPConn))
	}
}

func pass(to interface {
	io.Writer
	CloseWrite() error
}, from interface {
	io.Reader
	CloseRead() error
}) {
	io.Copy(to, from)
	to.CloseWrite()
	from.CloseRead()
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
