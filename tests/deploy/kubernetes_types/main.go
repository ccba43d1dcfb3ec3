// SPDX-License-Identifier: Apache-2.0

// Reads YAML documents and says of each whether it is one of Kubernetes' own types, without a key that the type lacks.
package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"

	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
)

func main() {
	decoder := json.NewSerializerWithOptions(
		json.DefaultMetaFactory, scheme.Scheme, scheme.Scheme, json.SerializerOptions{Yaml: true, Strict: true})
	documents := yaml.NewYAMLReader(bufio.NewReader(os.Stdin))
	failed := false
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		_, kind, err := decoder.Decode(document, nil, nil)
		if err != nil {
			fmt.Printf("%v: %v\n", kind, err)
			failed = true
			continue
		}
		fmt.Println(kind.GroupVersion(), kind.Kind)
	}
	if failed {
		os.Exit(1)
	}
}
