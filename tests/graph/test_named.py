"""OGB and PyG datasets, written here in the form in which the real ones lie on disk."""

from __future__ import annotations

import gzip
import json

import numpy as np
import pytest
from graph.small import PAIRS, RING, fields, neighbours

from isthmus.errors import InputError
from isthmus.graph import from_pyg, load
from isthmus.graph.pyg import DATASETS


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("ISTHMUS_DATA", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def csv_gz(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wt") as file:
        file.writelines(",".join(map(str, np.atleast_1d(row).tolist())) + "\n" for row in rows)


def splits(root, kind):
    for name, members in (("train", [0, 1]), ("valid", [2]), ("test", [3, 4])):
        csv_gz(root / "split" / kind / f"{name}.csv.gz", members)


def check_ring(graph):
    want = fields()
    assert neighbours(graph) == RING
    assert graph.y.tolist() == want["y"].tolist()
    for name in ("train_mask", "val_mask", "test_mask"):
        assert getattr(graph, name)[:, 0].tolist() == want[name].tolist()


def write_products(root):
    """ogbn-products: CSV, each undirected edge once."""
    csv_gz(root / "raw" / "edge.csv.gz", PAIRS)
    csv_gz(root / "raw" / "num-node-list.csv.gz", [6])
    csv_gz(root / "raw" / "num-edge-list.csv.gz", [6])
    csv_gz(root / "raw" / "node-feat.csv.gz", fields()["x"])
    csv_gz(root / "raw" / "node-label.csv.gz", [0, 1, 2, 0, 1, "nan"])
    splits(root, "sales_ranking")


def test_ogb_products(home):
    write_products(home / "ogbn_products")
    graph = load("ogb:ogbn-products")
    check_ring(graph)
    assert graph.x.tolist() == fields()["x"].tolist()
    assert graph.name == "ogbn-products"
    check_ring(load(home / "ogbn_products"))  # the folder itself is a source too


def test_ogb_arxiv_is_directed_and_needs_a_decision(home):
    write_products(home / "ogbn_arxiv")
    with pytest.raises(InputError, match="--undirected"):
        load("ogb:ogbn-arxiv")
    check_ring(load("ogb:ogbn-arxiv", undirected=True))


def test_nothing_is_read_from_the_working_folder(home, tmp_path, monkeypatch):
    """OGB's habit is ``dataset/`` there; PyG and OGB unpickle what they find in their caches."""
    work = tmp_path / "somebody-else-s"
    for name in ("ogbn_arxiv", "Cora", "Planetoid"):
        write_products(work / "dataset" / name)
    monkeypatch.chdir(work)
    monkeypatch.setitem(__import__("sys").modules, "ogb.nodeproppred", None)
    with pytest.raises(InputError, match="ogbn-arxiv is not in"):
        load("ogb:ogbn-arxiv", undirected=True)
    datasets, roots = pytest.importorskip("torch_geometric.datasets"), []

    class Planetoid:
        def __init__(self, root, name):
            roots.append(root)

        def __getitem__(self, _):
            return data()

    monkeypatch.setattr(datasets, "Planetoid", Planetoid)
    check_ring(load("pyg:Cora"))
    assert roots == [str(home / "Planetoid")]


def test_ogb_papers_is_binary(home):
    root = home / "ogbn_papers100M"
    (root / "raw").mkdir(parents=True)
    want = fields()
    np.savez(
        root / "raw" / "data.npz",
        edge_index=want["edge_index"],
        node_feat=want["x"],
        node_year=np.full((6, 1), 2019),
        num_nodes_list=np.array([6]),
        num_edges_list=np.array([12]),
    )
    label = np.array([[0], [1], [2], [0], [1], [np.nan]], np.float32)
    np.savez(root / "raw" / "node-label.npz", node_label=label)
    splits(root, "time")
    check_ring(load("ogb:ogbn-papers100M"))


def test_ogb_proteins_has_features_on_edges_and_label_sets(home):
    root = home / "ogbn_proteins"
    write_products(root)
    (root / "raw" / "node-feat.csv.gz").unlink()
    attr = np.arange(12).reshape(6, 2) / 8
    csv_gz(root / "raw" / "edge-feat.csv.gz", attr)
    csv_gz(root / "raw" / "species.csv.gz", [3702, 3702, 4932, 9606, 9606, 3702])
    csv_gz(root / "raw" / "node-label.csv.gz", np.eye(6, 4, dtype=int))
    graph = load("ogb:ogbn-proteins")
    assert neighbours(graph) == RING
    assert graph.multilabel
    assert graph.node_type.tolist() == [0, 0, 1, 2, 2, 0]
    assert graph.x[0].tolist() == ((attr[0] + attr[5]) / 2).tolist()
    assert graph.edge_attr.shape == (12, 2)
    assert graph.edge_attr[1].tolist() == attr[5].tolist()  # row 0 reads 1 then 5


def test_ogb_errors(home):
    with pytest.raises(InputError, match="take one of ogbn-products"):
        load("ogb:ogbn-nothing")
    write_products(home / "ogbn_products")
    csv_gz(home / "ogbn_products" / "raw" / "node-feat.csv.gz", [[1, 2], [3, "x"]])
    with pytest.raises(InputError, match=r"node-feat\.csv\.gz line 2, column 2: 'x' is not a number"):
        load("ogb:ogbn-products")
    (home / "ogbn_products" / "raw" / "node-label.csv.gz").unlink()
    with pytest.raises(InputError, match=r"has no node-label\.csv\.gz"):
        load("ogb:ogbn-products")


def test_ogb_absent_and_no_package(home, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "ogb.nodeproppred", None)
    with pytest.raises(InputError, match=r"unpack it there, or pip install 'isthmus\[ogb\]'"):
        load("ogb:ogbn-products")


def data(**changes):
    torch = pytest.importorskip("torch")
    pyg = pytest.importorskip("torch_geometric.data")
    arrays = {name: torch.from_numpy(array) for name, array in fields().items()}
    return pyg.Data(**(arrays | changes))


def test_pyg_data_in_memory():
    for graph in (from_pyg(data()), load(data())):
        check_ring(graph)
        assert graph.x.tolist() == fields()["x"].tolist()


def test_pyg_data_with_sparse_features():
    graph = from_pyg(data(x=data().x.to_sparse()))
    assert graph.x.shape == (6, 2)
    assert graph.x.data.tolist() == list(range(1, 12))


def test_pyg_edge_weights_are_edge_attributes():
    torch = pytest.importorskip("torch")
    weight = torch.arange(data().edge_index.shape[1]).bfloat16()
    graph = from_pyg(data(edge_weight=weight))
    assert graph.edge_attr.tolist() == from_pyg(data(edge_attr=weight)).edge_attr.tolist()
    both = from_pyg(data(edge_weight=weight, edge_attr=weight + 1, edge_type=weight))
    assert both.edge_attr.tolist() == (graph.edge_attr + 1).tolist()
    assert "edge_weight is not read" in both.notes[0]
    assert "edge_type is not read" in both.notes[1]


def test_bad_pyg_data():
    torch = pytest.importorskip("torch")
    with pytest.raises(InputError, match=r"no train_mask, val_mask, test_mask: .*RandomNodeSplit"):
        load(data(train_mask=None, val_mask=None, test_mask=None))
    with pytest.raises(InputError, match="no edge_index"):
        load(data(edge_index=None))
    with pytest.raises(InputError, match="no reverse"):
        from_pyg(data(edge_index=torch.tensor([[0], [1]])))
    hetero = pytest.importorskip("torch_geometric.data").HeteroData()
    with pytest.raises(InputError, match="to_homogeneous"):
        load(hetero)


def test_pyg_reddit_from_its_raw_files(home):
    pytest.importorskip("torch_geometric")
    sparse = pytest.importorskip("scipy.sparse")
    raw = home / "Reddit" / "raw"
    raw.mkdir(parents=True)
    want = fields()
    role = np.array([1, 1, 2, 3, 3, 0])
    np.savez(raw / "reddit_data.npz", feature=want["x"], label=want["y"], node_types=role)
    src, dst = want["edge_index"]
    sparse.save_npz(raw / "reddit_graph.npz", sparse.coo_matrix((np.ones(12), (src, dst)), (6, 6)))
    graph = load("pyg:Reddit")
    check_ring(graph)
    assert graph.name == "Reddit"
    check_ring(load("pyg:Reddit"))  # a second time, from what PyG kept


def test_pyg_yelp_label_sets_from_its_raw_files(home):
    pytest.importorskip("torch_geometric")
    sparse = pytest.importorskip("scipy.sparse")
    raw = home / "Yelp" / "raw"
    raw.mkdir(parents=True)
    want = fields()
    src, dst = want["edge_index"]
    full = sparse.csr_matrix((np.ones(12), (src, dst)), (6, 6))
    np.savez(raw / "adj_full.npz", data=full.data, indices=full.indices, indptr=full.indptr, shape=full.shape)
    np.save(raw / "feats.npy", want["x"].astype(np.float64))
    labels = np.eye(6, 3, dtype=int)
    (raw / "class_map.json").write_text(json.dumps({str(i): row.tolist() for i, row in enumerate(labels)}))
    (raw / "role.json").write_text(json.dumps({"tr": [0, 1], "va": [2], "te": [3, 4]}))
    graph = load("pyg:Yelp")
    assert neighbours(graph) == RING
    assert graph.y.tolist() == labels.tolist()


def test_pyg_photo_has_no_split_so_one_is_drawn(home):
    pytest.importorskip("torch_geometric")
    sparse = pytest.importorskip("scipy.sparse")
    raw = home / "Amazon" / "Photo" / "raw"
    raw.mkdir(parents=True)
    want = fields()
    rows = sparse.csr_matrix(want["x"])
    full = sparse.csr_matrix((np.ones(12), tuple(want["edge_index"])), (6, 6))
    np.savez(
        raw / "amazon_electronics_photo.npz",
        **{f"attr_{key}": getattr(rows, key) for key in ("data", "indices", "indptr", "shape")},
        **{f"adj_{key}": getattr(full, key) for key in ("data", "indices", "indptr", "shape")},
        labels=np.array([0, 1, 2, 0, 1, 2]),
    )
    graph = load("pyg:Photo")
    assert neighbours(graph) == RING
    assert [int(mask.sum()) for mask in (graph.train_mask, graph.val_mask, graph.test_mask)] == [4, 1, 1]
    assert "60/20/20" in graph.notes[0]


def test_unknown_names_are_answered_with_the_known():
    pytest.importorskip("torch_geometric")
    datasets = pytest.importorskip("torch_geometric.datasets")
    assert all(hasattr(datasets, kind) for kind, _ in DATASETS.values())
    with pytest.raises(InputError, match="take one of Reddit, "):
        load("pyg:Nothing")


@pytest.mark.parametrize("source", ["nowhere", "kaggle:cora", 3, None])
def test_unknown_source_lists_the_forms(source, home):
    with pytest.raises(InputError, match=r"\.npz file.*ogb:NAME, pyg:NAME.*synthetic:NAME@SCALE"):
        load(source)


def test_other_files_and_folders(tmp_path):
    (tmp_path / "a.txt").write_text("hello")
    with pytest.raises(InputError, match=r"not an \.npz file"):
        load(tmp_path / "a.txt")
    with pytest.raises(InputError, match=r"neither edges\.parquet"):
        load(tmp_path)
    (tmp_path / "book.json").write_text("{}")
    with pytest.raises(InputError, match="holds parts"):
        load(tmp_path)
