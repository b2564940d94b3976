//! Manifests, there and back.

use std::fs;

use serde_json::json;

use super::*;

const CLASS: &str = "\
apiVersion: secrets-store.csi.x-k8s.io/v1
kind: SecretProviderClass
metadata: {name: db, namespace: shop}
spec:
  provider: vault
  parameters:
    vaultAddress: https://vault.example:8200
    roleName: app
    objects: |
      - objectName: pw
        secretPath: secret/data/db
        secretKey: password
      - objectName: user
        secretPath: secret/data/db
        secretKey: username
      - objectName: all
        secretPath: secret/data/db
  secretObjects:
  - secretName: db
    type: Opaque
    data:
    - {objectName: pw, key: password}
    - {objectName: user, key: username}
  - secretName: bundle
    data:
    - {objectName: all, key: json}
";

const WORKLOAD: &str = "\
# Owned by the shop team.
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  template:
    spec:
      serviceAccountName: web
      containers:
      - name: app
        image: web:1
        env:
        - name: DB_PASSWORD # rotated by Vault
          valueFrom:
            secretKeyRef:
              name: db
              key: password
        - name: DB_USER
          valueFrom: {secretKeyRef: {name: db, key: username, optional: true}}
        - name: FROM_ELSEWHERE
          valueFrom: {secretKeyRef: {name: other, key: k}}
        volumeMounts:
        - {name: store, mountPath: /mnt/store}
      volumes:
      - name: store
        csi:
          driver: secrets-store.csi.k8s.io
          volumeAttributes: {secretProviderClass: db}
";

fn options() -> Options {
    Options { namespace: "default".to_owned(), keep_provider: false, drop_volumes: false }
}

fn files(texts: &[&str]) -> (tempfile::TempDir, Files) {
    let folder = tempfile::tempdir().unwrap();
    for (at, text) in texts.iter().enumerate() {
        fs::write(folder.path().join(format!("{at}.yaml")), text).unwrap();
    }
    let files = Files::read(&[folder.path().to_owned()]).unwrap();
    (folder, files)
}

/// CSI-70
#[test]
fn a_workload_keeps_its_text_but_for_the_references_csi_70() {
    let (_folder, files) = files(&[CLASS, WORKLOAD]);
    let plan = Plan::forward(&files.objects(), &options());
    assert!(plan.report.left.is_empty(), "{:?}", plan.report);
    let changed = files.changed(&plan).unwrap();
    let expected = WORKLOAD
        .replace(
            "            secretKeyRef:
              name: db
              key: password
",
            "            csiSecretRef:
              driver: vault.csi.waybill.dev
              key: secret/data/db
              parameters:
                field: password
              providerClassName: shop.db
",
        )
        .replace(
            "{secretKeyRef: {name: db, key: username, optional: true}}",
            r#"{"csiSecretRef":{"driver":"vault.csi.waybill.dev","key":"secret/data/db","optional":true,"parameters":{"field":"username"},"providerClassName":"shop.db"}}"#,
        );
    assert_eq!(changed.len(), 1);
    assert_eq!(changed[0].after, expected);
    assert_eq!(changed[0].note(), None);
}

/// CSI-70: classes of ours have no namespace.
#[test]
fn classes_of_one_name_in_two_namespaces_stay_two_csi_70() {
    // With `-` between them, `a-b` and `c` would be what `a` and `b-c` are.
    let places = [("a", "b-c"), ("a-b", "c"), ("a", "c"), ("b", "c")];
    let moved = |text: &str, (namespace, name): (&str, &str)| {
        text.replace("namespace: shop", &format!("namespace: {namespace}"))
            .replace("name: db, namespace", &format!("name: {name}, namespace"))
            .replace("Class: db", &format!("Class: {name}"))
            .replace("vault.example", &format!("{namespace}.{name}.example"))
            .replace("name: db\n", &format!("name: db-{name}\n"))
            .replace("secretName: db\n", &format!("secretName: db-{name}\n"))
            .replace("{name: db, key", &format!("{{name: db-{name}, key"))
    };
    let texts: Vec<_> =
        places.iter().flat_map(|place| [moved(CLASS, *place), moved(WORKLOAD, *place)]).collect();
    let (folder, there) = files(&texts.iter().map(String::as_str).collect::<Vec<_>>());
    let plan = Plan::forward(&there.objects(), &options());
    assert!(plan.report.left.is_empty(), "{:?}", plan.report);
    let classes: Vec<_> = plan
        .new
        .iter()
        .filter(|it| it["kind"] == "ProviderClass")
        .map(|it| (it["metadata"]["name"].as_str(), it["spec"]["parameters"]["vaultAddr"].as_str()))
        .collect();
    let expected = ["a-b.c", "a.b-c", "a.c", "b.c"];
    assert_eq!(classes.len(), expected.len());
    for ((name, address), expected) in classes.into_iter().zip(expected) {
        assert_eq!(name, Some(expected));
        assert_eq!(address, Some(&*format!("https://{expected}.example:8200")));
    }

    // And back, each to its own.
    let mut log = Vec::new();
    there.changed(&plan).unwrap().iter().for_each(|file| file.write(&mut log).unwrap());
    create_new(&folder, &plan.new);
    let migrated = Files::read(&[folder.path().to_owned()]).unwrap();
    let back = Plan::reverse(&migrated.objects(), &options());
    assert!(back.report.left.is_empty() && back.new.is_empty(), "{:?}", back.report);
    let restored: Vec<_> =
        migrated.changed(&back).unwrap().into_iter().map(|it| it.after).collect();
    for (place, restored) in places.iter().zip(&restored) {
        assert_eq!(edit::documents(restored), edit::documents(&moved(WORKLOAD, *place)));
    }
    assert_eq!(restored.len(), places.len());
}

/// CSI-70
#[test]
fn a_name_that_becomes_too_long_is_left_csi_70() {
    let long = "d".repeat(250);
    let class = CLASS.replace("name: db, namespace", &format!("name: {long}, namespace"));
    let (_folder, files) = files(&[&class, WORKLOAD]);
    let plan = Plan::forward(&files.objects(), &options());
    assert!(plan.new.is_empty());
    assert!(
        plan.report.left.iter().all(|it| it.contains("more than 253 bytes")),
        "{:?}",
        plan.report
    );
    assert!(!plan.report.left.is_empty());
}

/// CSI-70
#[test]
fn the_new_class_serves_the_namespace_the_keys_and_the_accounts_and_no_more_csi_70() {
    let (_folder, files) = files(&[CLASS, WORKLOAD]);
    let plan = Plan::forward(&files.objects(), &options());
    let [class, driver, role, binding] = &plan.new[..] else { panic!("{:?}", plan.new) };
    assert_eq!(driver["spec"]["tokenRequests"], json!([{"audience": "vault"}]));
    assert_eq!(class["metadata"]["name"], "shop.db");
    assert_eq!(
        class["spec"],
        json!({"driver": "vault.csi.waybill.dev", "parameters": {
            "allowedFields": "secret/data/db",
            "allowedNamespaces": "shop",
            "vaultAddr": "https://vault.example:8200",
            "vaultRole": "app",
        }})
    );
    assert_eq!(role["rules"][0]["verbs"], json!(["use"]));
    assert_eq!(role["rules"][0]["resourceNames"], json!(["shop.db"]));
    assert_eq!(
        binding["subjects"],
        json!([{"kind": "ServiceAccount", "name": "web", "namespace": "shop"}])
    );
    assert_eq!(binding["metadata"]["namespace"], "shop");
    let parsed: waybill_api::provider_class::ProviderClass =
        serde_json::from_value(class.clone()).unwrap();
    assert!(waybill_api::provider_class::warnings(&parsed).is_empty());
}

/// CSI-70
#[test]
fn what_cannot_be_mapped_is_named_and_stays_csi_70() {
    let workload = WORKLOAD
        .replace("name: db\n              key: password", "name: bundle\n              key: json");
    let (_folder, files) = files(&[CLASS, &workload]);
    let plan = Plan::forward(&files.objects(), &options());
    assert_eq!(plan.report.left.len(), 1, "{:?}", plan.report);
    assert!(
        plan.report.left[0]
            .starts_with("Deployment shop/web, container app, variable DB_PASSWORD: ")
    );
    let after = &files.changed(&plan).unwrap()[0].after;
    assert!(after.contains("name: bundle") && after.contains("csiSecretRef"));
}

/// CSI-70
#[test]
fn all_keys_of_a_secret_become_variables_before_the_others_csi_70() {
    let pod = "apiVersion: v1\nkind: PodTemplate\nmetadata: {name: p, namespace: shop}\ntemplate:\n  spec:\n    \
               containers:\n    - name: c\n      envFrom:\n      - {prefix: DB_, secretRef: {name: db}}\n      \
               env: [{name: A, value: a}]\n";
    let (_folder, files) = files(&[CLASS, pod]);
    let plan = Plan::forward(&files.objects(), &options());
    let changed = files.changed(&plan).unwrap();
    let after = &edit::documents(&changed[0].after).unwrap()[0];
    let container = &after["template"]["spec"]["containers"][0];
    let names: Vec<_> = container["env"].as_array().unwrap().iter().map(|it| &it["name"]).collect();
    assert_eq!(names, ["DB_password", "DB_username", "A"]);
    assert!(container.get("envFrom").is_none());
    assert!(changed[0].note().unwrap().ends_with("without its comments"));
}

/// CSI-70
#[test]
fn volumes_go_only_on_demand_csi_70() {
    let (_folder, files) = files(&[CLASS, WORKLOAD]);
    let plan = Plan::forward(&files.objects(), &Options { drop_volumes: true, ..options() });
    let after = &edit::documents(&files.changed(&plan).unwrap()[0].after).unwrap()[0];
    let spec = &after["spec"]["template"]["spec"];
    assert!(spec.get("volumes").is_none());
    assert!(spec["containers"][0].get("volumeMounts").is_none());
}

/// CSI-70: for a downgrade.
#[test]
fn the_way_back_ends_where_it_began_csi_70() {
    let (folder, there) = files(&[CLASS, WORKLOAD]);
    let plan = Plan::forward(&there.objects(), &options());
    let mut log = Vec::new();
    there.changed(&plan).unwrap().iter().for_each(|file| file.write(&mut log).unwrap());
    create_new(&folder, &plan.new);

    let migrated = Files::read(&[folder.path().to_owned()]).unwrap();
    let back = Plan::reverse(&migrated.objects(), &options());
    assert!(back.report.left.is_empty(), "{:?}", back.report);
    assert!(back.new.is_empty(), "its SecretProviderClass is still there: {:?}", back.new);
    let changed = migrated.changed(&back).unwrap();
    assert_eq!(edit::documents(&changed[0].after), edit::documents(WORKLOAD));
}

fn create_new(folder: &tempfile::TempDir, objects: &[Value]) {
    files::create(&folder.path().join("new.yaml"), &files::written(objects).unwrap()).unwrap();
}

/// CSI-70
#[test]
fn a_class_of_ours_becomes_one_of_theirs_with_a_volume_to_keep_it_in_step_csi_70() {
    let class = "{apiVersion: storage.k8s.io/v1, kind: ProviderClass, metadata: {name: v}, spec: {driver: \
                 vault.csi.waybill.dev, parameters: {vaultAddr: https://v, vaultRole: r, allowedFields: '**'}}}";
    let pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  containers:\n  - name: c\n    env:\n    \
               - name: A\n      valueFrom: {csiSecretRef: {driver: vault.csi.waybill.dev, \
               providerClassName: v, key: secret/data/a, parameters: {field: f}}}\n    \
               - name: B\n      valueFrom: {csiSecretRef: {driver: os.csi.waybill.dev, providerClassName: os, key: k}}\n";
    let (_folder, files) = files(&[class, pod]);
    let plan = Plan::reverse(&files.objects(), &options());
    assert_eq!(
        plan.report.left,
        ["Pod default/p, variable B: ProviderClass os is not among the objects"]
    );
    let class = &plan.new[0];
    assert_eq!(class["spec"]["provider"], "vault");
    assert_eq!(class["spec"]["parameters"]["roleName"], "r");
    assert!(class["spec"]["parameters"].get("allowedFields").is_none());
    assert_eq!(class["spec"]["secretObjects"][0]["data"][0]["key"], "secret_data_a-f");
    let after = &edit::documents(&files.changed(&plan).unwrap()[0].after).unwrap()[0];
    let key = json!({"secretKeyRef": {"name": "v-env", "key": "secret_data_a-f"}});
    assert_eq!(after["spec"]["containers"][0]["env"][0]["valueFrom"], key);
    assert_eq!(after["spec"]["volumes"][0]["csi"]["volumeAttributes"]["secretProviderClass"], "v");
    assert_eq!(
        after["spec"]["containers"][0]["volumeMounts"][0]["mountPath"],
        "/mnt/secrets-store/v"
    );
}

#[test]
fn new_objects_never_overwrite_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("new.yaml");
    files::create(&path, "a").unwrap();
    assert!(files::create(&path, "b").is_err());
    assert_eq!(fs::read_to_string(&path).unwrap(), "a");
}

/// A second run would find nothing to migrate, and the classes would never be written.
#[test]
fn manifests_stay_as_they_are_if_the_new_objects_have_no_place() {
    let (folder, files) = files(&[CLASS, WORKLOAD]);
    let taken = folder.path().join("taken");
    fs::write(&taken, "").unwrap();
    let args = SecretsStore {
        filename: vec![folder.path().to_owned()],
        in_cluster: false,
        write: true,
        new_objects: taken,
        reverse: false,
        keep_provider: false,
        drop_volumes: false,
        cluster: ClusterArgs::default(),
    };
    let plan = Plan::forward(&files.objects(), &options());
    assert!(args.carry_out_in_files(&files, &plan).is_err());
    assert_eq!(fs::read_to_string(folder.path().join("1.yaml")).unwrap(), WORKLOAD);
}
