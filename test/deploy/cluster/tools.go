//go:build tools

// What is built from this module; its go.mod puts the published modules in the place of Kubernetes' staging folders.
package tools

import (
	_ "go.etcd.io/etcd/server/v3/etcdmain"
	_ "k8s.io/kubectl/pkg/cmd"
	_ "k8s.io/kubernetes/cmd/kube-apiserver/app"
	_ "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	_ "sigs.k8s.io/gateway-api/apis/v1"
)
