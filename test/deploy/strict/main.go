// Builds each folder given, as `kubectl apply -k` would, or reads each file, and decodes every object strictly into the
// published Go types of Kubernetes, the Gateway API, cert-manager and Prometheus' operator: an unknown or misplaced field is
// an error. Prints one line for each object: kind, name, and the object as JSON.
package main

import (
	"bufio"
	"bytes"
	stdjson "encoding/json"
	"fmt"
	"io"
	"os"

	certs "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	apps "k8s.io/api/apps/v1"
	autoscaling "k8s.io/api/autoscaling/v2"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	rbac "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	gateway "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

func main() {
	scheme := runtime.NewScheme()
	groups := runtime.SchemeBuilder{
		apps.AddToScheme, batch.AddToScheme, core.AddToScheme, networking.AddToScheme, policy.AddToScheme,
		rbac.AddToScheme, gateway.Install, autoscaling.AddToScheme, monitoring.AddToScheme, certs.AddToScheme,
	}
	if err := groups.AddToScheme(scheme); err != nil {
		fail("types", err)
	}
	options := json.SerializerOptions{Yaml: true, Strict: true}
	decoder := json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme, scheme, options)
	for _, path := range os.Args[1:] {
		text, err := read(path)
		if err != nil {
			fail(path, err)
		}
		if err := decode(path, text, decoder); err != nil {
			fail(path, err)
		}
	}
}

func read(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil || !info.IsDir() {
		text, readErr := os.ReadFile(path)
		return text, readErr
	}
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), path)
	if err != nil {
		return nil, err
	}
	return built.AsYaml()
}

func decode(path string, text []byte, decoder runtime.Decoder) error {
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for {
		document, err := documents.Read()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		object, kind, err := decoder.Decode(document, nil, nil)
		if err != nil {
			return err
		}
		about, err := meta.Accessor(object)
		if err != nil {
			return err
		}
		whole, err := stdjson.Marshal(object)
		if err != nil {
			return err
		}
		fmt.Printf("%s %s/%s %s\n", path, kind.Kind, about.GetName(), whole)
	}
}

func fail(what string, err error) {
	fmt.Fprintf(os.Stderr, "%s: %v\n", what, err)
	os.Exit(1)
}
