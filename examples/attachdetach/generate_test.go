package main

import (
	"bufio"
	"fmt"
	"io"
	"strings"
)

// generateDump writes a dump as kubectl would: pods of StatefulSets, one volume each, 30 to a node. Of three volumes, one is
// attached and in use already, one is to be attached, and one is still attached to the node that its pod came from.
func generateDump(w io.Writer, pods int) error {
	b := bufio.NewWriterSize(w, 1<<20)
	nodes := max(2, (pods+29)/30)
	attached, inUse := map[int][]int{}, map[int][]int{}
	for i := range pods {
		node := i % nodes
		switch i % 3 {
		case 0:
			attached[node] = append(attached[node], i)
			inUse[node] = append(inUse[node], i)
		case 1:
			attached[(node+1)%nodes] = append(attached[(node+1)%nodes], i)
		}
	}
	fmt.Fprint(b, "{\n    \"apiVersion\": \"v1\",\n    \"items\": [\n")
	for n := range nodes {
		fmt.Fprintf(b, generatedNode, n, volumeList(inUse[n], "%q"), volumeList(attached[n], `{"devicePath": "", "name": %q}`))
	}
	for i := range pods {
		fmt.Fprintf(b, generatedPod, i, i%nodes, generatedNoise)
	}
	for i := range pods {
		fmt.Fprintf(b, generatedClaim, i, i%nodes)
	}
	for i := range pods {
		fmt.Fprintf(b, generatedVolume, i, i%nodes)
		if i+1 < pods {
			b.WriteString(",\n")
		}
	}
	fmt.Fprint(b, "\n    ],\n    \"kind\": \"List\",\n    \"metadata\": {\n        \"resourceVersion\": \"\"\n    }\n}\n")
	return b.Flush()
}

func volumeList(volumes []int, format string) string {
	var list []string
	for _, i := range volumes {
		list = append(list, fmt.Sprintf(format, fmt.Sprintf("kubernetes.io/csi/ebs.csi.aws.com^vol-%08x", i)))
	}
	return strings.Join(list, ",\n                    ")
}

const generatedNode = `        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "annotations": {
                    "volumes.kubernetes.io/controller-managed-attach-detach": "true"
                },
                "creationTimestamp": "2026-01-05T08:00:00Z",
                "name": "node-%[1]d",
                "uid": "0b6d2a52-0000-4000-8000-0000%08[1]x"
            },
            "spec": {
                "providerID": "aws:///eu-west-1a/i-%08[1]x"
            },
            "status": {
                "conditions": [
                    {
                        "reason": "KubeletReady",
                        "status": "True",
                        "type": "Ready"
                    }
                ],
                "volumesInUse": [
                    %[2]s
                ],
                "volumesAttached": [
                    %[3]s
                ]
            }
        },
`

const generatedPod = `        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "creationTimestamp": "2026-01-31T12:00:00Z",
                "generateName": "db-",
                "labels": {
                    "app": "db",
                    "statefulset.kubernetes.io/pod-name": "db-%[1]d"
                },
                "managedFields": [
%[3]s                ],
                "name": "db-%[1]d",
                "namespace": "tenant-%[2]d",
                "ownerReferences": [
                    {
                        "apiVersion": "apps/v1",
                        "controller": true,
                        "kind": "StatefulSet",
                        "name": "db",
                        "uid": "5e1f0000-0000-4000-8000-0000%08[1]x"
                    }
                ],
                "uid": "7a11c0de-0000-4000-8000-0000%08[1]x"
            },
            "spec": {
                "containers": [
                    {
                        "args": ["--data=/var/lib/db", "--listen=:5432", "--verbose=2"],
                        "image": "registry.example.com/db/server:17.2",
                        "imagePullPolicy": "IfNotPresent",
                        "name": "db",
                        "resources": {
                            "limits": {"cpu": "2", "memory": "4Gi"},
                            "requests": {"cpu": "500m", "memory": "2Gi"}
                        },
                        "volumeMounts": [
                            {"mountPath": "/var/lib/db", "name": "data"},
                            {"mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "name": "kube-api-access-x7k2p", "readOnly": true}
                        ]
                    }
                ],
                "nodeName": "node-%[2]d",
                "serviceAccountName": "default",
                "volumes": [
                    {
                        "name": "data",
                        "persistentVolumeClaim": {
                            "claimName": "data-db-%[1]d"
                        }
                    },
                    {
                        "name": "kube-api-access-x7k2p",
                        "projected": {
                            "defaultMode": 420,
                            "sources": [
                                {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                                {"configMap": {"items": [{"key": "ca.crt", "path": "ca.crt"}], "name": "kube-root-ca.crt"}},
                                {"downwardAPI": {"items": [{"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}, "path": "namespace"}]}}
                            ]
                        }
                    }
                ]
            },
            "status": {
                "conditions": [
                    {"lastTransitionTime": "2026-01-31T12:00:09Z", "status": "True", "type": "Ready"}
                ],
                "containerStatuses": [
                    {
                        "containerID": "containerd://2c5a5e3c7e5f0b1d7a3d9b8c6f4e2d1c0b9a8f7e6d5c4b3a291807f6e5d4c3b2",
                        "image": "registry.example.com/db/server:17.2",
                        "name": "db",
                        "ready": true,
                        "restartCount": 0,
                        "state": {"running": {"startedAt": "2026-01-31T12:00:08Z"}}
                    }
                ],
                "phase": "Running",
                "podIP": "10.0.0.1"
            }
        },
`

const generatedClaim = `        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {
                "creationTimestamp": "2026-01-31T11:59:00Z",
                "name": "data-db-%[1]d",
                "namespace": "tenant-%[2]d",
                "uid": "c1a10000-0000-4000-8000-0000%08[1]x"
            },
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "10Gi"}},
                "storageClassName": "gp3",
                "volumeMode": "Filesystem",
                "volumeName": "pvc-c1a10000-0000-4000-8000-0000%08[1]x"
            },
            "status": {
                "accessModes": ["ReadWriteOnce"],
                "capacity": {"storage": "10Gi"},
                "phase": "Bound"
            }
        },
`

const generatedVolume = `        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {
                "creationTimestamp": "2026-01-31T11:59:04Z",
                "name": "pvc-c1a10000-0000-4000-8000-0000%08[1]x",
                "uid": "9d000000-0000-4000-8000-0000%08[1]x"
            },
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "capacity": {"storage": "10Gi"},
                "claimRef": {
                    "apiVersion": "v1",
                    "kind": "PersistentVolumeClaim",
                    "name": "data-db-%[1]d",
                    "namespace": "tenant-%[2]d",
                    "uid": "c1a10000-0000-4000-8000-0000%08[1]x"
                },
                "csi": {
                    "driver": "ebs.csi.aws.com",
                    "fsType": "ext4",
                    "volumeAttributes": {
                        "storage.kubernetes.io/csiProvisionerIdentity": "1769860744000-8081-ebs.csi.aws.com"
                    },
                    "volumeHandle": "vol-%08[1]x"
                },
                "persistentVolumeReclaimPolicy": "Delete",
                "storageClassName": "gp3",
                "volumeMode": "Filesystem"
            },
            "status": {
                "phase": "Bound"
            }
        }`

// generatedNoise is what most of a real dump is.
var generatedNoise = strings.TrimSuffix(strings.Repeat(`                    {
                        "apiVersion": "v1",
                        "fieldsType": "FieldsV1",
                        "fieldsV1": {
                            "f:metadata": {"f:labels": {".": {}, "f:app": {}}},
                            "f:spec": {"f:containers": {"k:{\"name\":\"db\"}": {".": {}, "f:image": {}, "f:resources": {}}}}
                        },
                        "manager": "kube-controller-manager",
                        "operation": "Update",
                        "time": "2026-01-31T12:00:00Z"
                    },
`, 2), ",\n") + "\n"
