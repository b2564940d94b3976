"""The Python client `kubernetes` against a server that a Rust test has started."""

import os
import threading
import unittest

from kubernetes import client, watch
from kubernetes.client.exceptions import ApiException

PATIENCE = 30


def connect(token):
    configuration = client.Configuration()
    configuration.host = os.environ["WAYBILL_URL"]
    configuration.ssl_ca_cert = os.environ["WAYBILL_CA"]
    configuration.api_key = {"authorization": token}
    configuration.api_key_prefix = {"authorization": "Bearer"}
    return client.ApiClient(configuration)


def config_map(name, labels=None, **data):
    metadata = client.V1ObjectMeta(name=name, labels=labels)
    return client.V1ConfigMap(metadata=metadata, data=data)


class ClientTest(unittest.TestCase):
    """Each test has a namespace of its own."""

    def setUp(self):
        self.api = connect(os.environ["WAYBILL_TOKEN"])
        self.core = client.CoreV1Api(self.api)
        metadata = client.V1ObjectMeta(generate_name="test-")
        self.namespace = self.core.create_namespace(client.V1Namespace(metadata=metadata)).metadata.name
        # The server writes one ConfigMap into each namespace; these tests look at their own.
        self.ours = "metadata.name!=kube-root-ca.crt"

    def tearDown(self):
        self.core.delete_namespace(self.namespace)
        self.api.close()

    def wait_for_service_account(self):
        """Pods need one, and the server makes it soon after the namespace."""
        stream = watch.Watch()
        for event in stream.stream(
            self.core.list_namespaced_service_account,
            self.namespace,
            field_selector="metadata.name=default",
            timeout_seconds=PATIENCE,
        ):
            if event["type"] == "ADDED":
                stream.stop()

    def assert_refused(self, status, reason, call, *args, **kwargs):
        with self.assertRaises(ApiException) as caught:
            call(*args, **kwargs)
        self.assertEqual(caught.exception.status, status, caught.exception.body)
        self.assertIn(f'"reason":"{reason}"', caught.exception.body)
        return caught.exception

    def test_an_object_is_created_read_replaced_and_deleted(self):
        created = self.core.create_namespaced_config_map(self.namespace, config_map("app", a="1"))
        self.assertTrue(created.metadata.uid)
        self.assertIsNotNone(created.metadata.creation_timestamp.tzinfo)
        read = self.core.read_namespaced_config_map("app", self.namespace)
        self.assertEqual(read.data, {"a": "1"})
        read.data["b"] = "2"
        replaced = self.core.replace_namespaced_config_map("app", self.namespace, read)
        self.assertEqual(replaced.data, {"a": "1", "b": "2"})
        self.assertGreater(int(replaced.metadata.resource_version), int(read.metadata.resource_version))
        deleted = self.core.delete_namespaced_config_map("app", self.namespace)
        self.assertEqual(deleted["status"], "Success")
        self.assert_refused(404, "NotFound", self.core.read_namespaced_config_map, "app", self.namespace)

    def test_a_secret_keeps_its_bytes(self):
        secret = client.V1Secret(metadata=client.V1ObjectMeta(name="key"), string_data={"password": "hunter2"})
        self.core.create_namespaced_secret(self.namespace, secret)
        read = self.core.read_namespaced_secret("key", self.namespace)
        self.assertEqual(read.data, {"password": "aHVudGVyMg=="})
        self.assertEqual(read.type, "Opaque")

    def test_a_list_comes_in_pages_and_by_label(self):
        for number in range(7):
            labels = {"parity": "odd" if number % 2 else "even"}
            self.core.create_namespaced_config_map(self.namespace, config_map(f"m{number}", labels))
        names, token, pages = [], None, 0
        while pages == 0 or token:
            page = self.core.list_namespaced_config_map(
                self.namespace, limit=3, _continue=token, field_selector=self.ours
            )
            self.assertLessEqual(len(page.items), 3)
            names += [item.metadata.name for item in page.items]
            token, pages = page.metadata._continue, pages + 1
        self.assertEqual(names, [f"m{number}" for number in range(7)])
        self.assertEqual(pages, 3)
        odd = self.core.list_namespaced_config_map(self.namespace, label_selector="parity in (odd)")
        self.assertEqual([item.metadata.name for item in odd.items], ["m1", "m3", "m5"])

    def test_a_watch_shows_each_change_in_order(self):
        start = self.core.list_namespaced_config_map(self.namespace).metadata.resource_version

        def change():
            self.core.create_namespaced_config_map(self.namespace, config_map("w", a="1"))
            self.core.patch_namespaced_config_map("w", self.namespace, {"data": {"a": "2"}})
            self.core.delete_namespaced_config_map("w", self.namespace)

        writer = threading.Thread(target=change)
        writer.start()
        seen, stream = [], watch.Watch()
        for event in stream.stream(
            self.core.list_namespaced_config_map,
            self.namespace,
            resource_version=start,
            field_selector="metadata.name=w",
            timeout_seconds=PATIENCE,
        ):
            seen.append((event["type"], event["object"].data))
            if len(seen) == 3:
                stream.stop()
        writer.join()
        self.assertEqual(
            seen, [("ADDED", {"a": "1"}), ("MODIFIED", {"a": "2"}), ("DELETED", {"a": "2"})]
        )

    def test_a_watch_from_a_version_that_is_gone_says_so(self):
        with self.assertRaises(ApiException) as caught:
            for _ in watch.Watch().stream(
                self.core.list_namespaced_config_map,
                self.namespace,
                resource_version="1",
                timeout_seconds=PATIENCE,
            ):
                self.fail("nothing can be shown from there")
        self.assertEqual(caught.exception.status, 410)

    def test_an_object_is_patched_in_three_ways(self):
        containers = [client.V1Container(name="app", image="busybox", env=[client.V1EnvVar(name="A", value="1")])]
        pod = client.V1Pod(metadata=client.V1ObjectMeta(name="p"), spec=client.V1PodSpec(containers=containers))
        self.wait_for_service_account()
        self.core.create_namespaced_pod(self.namespace, pod)

        def patch(body, kind):
            return self.core.patch_namespaced_pod("p", self.namespace, body, _content_type=kind)

        merged = patch({"metadata": {"labels": {"a": "1", "b": "2"}}}, "application/merge-patch+json")
        self.assertEqual(merged.metadata.labels, {"a": "1", "b": "2"})
        operations = [
            {"op": "test", "path": "/metadata/labels/a", "value": "1"},
            {"op": "remove", "path": "/metadata/labels/b"},
        ]
        patched = patch(operations, "application/json-patch+json")
        self.assertEqual(patched.metadata.labels, {"a": "1"})
        strategic = {"spec": {"containers": [{"name": "app", "image": "busybox:2"}]}}
        changed = patch(strategic, "application/strategic-merge-patch+json")
        self.assertEqual(changed.spec.containers[0].image, "busybox:2")
        self.assertEqual(changed.spec.containers[0].env[0].name, "A")
        self.assert_refused(415, "UnsupportedMediaType", patch, {}, "application/json")
        failed_test = [{"op": "test", "path": "/metadata/labels/a", "value": "9"}]
        self.assert_refused(422, "Invalid", patch, failed_test, "application/json-patch+json")

    def test_refusals_carry_their_status(self):
        create = self.core.create_namespaced_config_map
        create(self.namespace, config_map("taken"))
        self.assert_refused(409, "AlreadyExists", create, self.namespace, config_map("taken"))
        refused = self.assert_refused(422, "Invalid", create, self.namespace, config_map("Not_A_Name"))
        self.assertIn("metadata.name", refused.body)
        self.assert_refused(404, "NotFound", create, "nowhere", config_map("a"))
        stale = self.core.read_namespaced_config_map("taken", self.namespace)
        self.core.patch_namespaced_config_map("taken", self.namespace, {"data": {"a": "1"}})
        self.assert_refused(
            409, "Conflict", self.core.replace_namespaced_config_map, "taken", self.namespace, stale
        )
        with connect("wrong") as stranger:
            self.assert_refused(401, "Unauthorized", client.CoreV1Api(stranger).list_namespace)

    def test_a_collection_is_deleted(self):
        for name in ("a", "b"):
            self.core.create_namespaced_config_map(self.namespace, config_map(name, {"x": "y"}))
        self.core.create_namespaced_config_map(self.namespace, config_map("c"))
        self.core.delete_collection_namespaced_config_map(self.namespace, label_selector="x=y")
        left = self.core.list_namespaced_config_map(self.namespace, field_selector=self.ours)
        self.assertEqual([item.metadata.name for item in left.items], ["c"])

    def test_reviews_say_who_may_do_what(self):
        authorization = client.AuthorizationV1Api(self.api)

        def allowed(user):
            attributes = client.V1ResourceAttributes(
                namespace=self.namespace, verb="get", resource="configmaps"
            )
            spec = client.V1SubjectAccessReviewSpec(resource_attributes=attributes, user=user)
            review = client.V1SubjectAccessReview(spec=spec)
            return authorization.create_subject_access_review(review).status.allowed

        self.assertFalse(allowed("alice"))
        rbac = client.RbacAuthorizationV1Api(self.api)
        rule = client.V1PolicyRule(api_groups=[""], resources=["configmaps"], verbs=["get"])
        rbac.create_namespaced_role(
            self.namespace, client.V1Role(metadata=client.V1ObjectMeta(name="reader"), rules=[rule])
        )
        rbac.create_namespaced_role_binding(
            self.namespace,
            client.V1RoleBinding(
                metadata=client.V1ObjectMeta(name="readers"),
                role_ref=client.V1RoleRef(api_group="rbac.authorization.k8s.io", kind="Role", name="reader"),
                subjects=[client.RbacV1Subject(api_group="rbac.authorization.k8s.io", kind="User", name="alice")],
            ),
        )
        self.assertTrue(allowed("alice"))
        self.assertFalse(allowed("bob"))
        attributes = client.V1ResourceAttributes(verb="*", resource="*", group="*")
        spec = client.V1SelfSubjectAccessReviewSpec(resource_attributes=attributes)
        review = client.V1SelfSubjectAccessReview(spec=spec)
        self.assertTrue(authorization.create_self_subject_access_review(review).status.allowed)

    def test_discovery_names_what_is_served(self):
        self.assertIn("v1", client.CoreApi(self.api).get_api_versions().versions)
        groups = [group.name for group in client.ApisApi(self.api).get_api_versions().groups]
        self.assertIn("rbac.authorization.k8s.io", groups)
        names = [resource.name for resource in self.core.get_api_resources().resources]
        self.assertIn("pods/exec", names)
        self.assertTrue(client.VersionApi(self.api).get_code().git_version.startswith("v1."))


if __name__ == "__main__":
    unittest.main()
