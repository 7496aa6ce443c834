import pytest

from obbflow.data.class_names import find_near_misses
from scenes import annotations_table, level_box

BOX = level_box(0, 0, 10, 10)


def near_misses(counts, expected=()):
    names = [name for name, count in counts.items() for _ in range(count)]
    table = annotations_table(*[("P1", name, BOX) for name in names])
    return find_near_misses(table, expected).to_dict("records")


@pytest.mark.parametrize(
    "name", ["small-vehicle", "Small Vehicle", "small_vehicle", "smallvehicle", "SMALL  VEHICLE"]
)
def test_case_and_separators_make_one_name(name):
    (issue,) = near_misses({"small vehicle": 3, name: 2})
    assert (issue["kind"], issue["severity"], issue["line"]) == (
        "class_name_near_miss",
        "warning",
        6,
    )
    assert issue["message"] == (
        f"class {name!r} (objects: 2) may be 'small vehicle' (3); "
        f'if so, set dataset.map_labels: {{"{name}": "small vehicle"}}'
    )


@pytest.mark.parametrize("name", ["shipp", "shp", "ehip", "Ship s"])
def test_one_letter_beside_a_far_more_frequent_class_is_reported(name):
    (issue,) = near_misses({"ship": 20, name: 2})
    assert f'{{"{name}": "ship"}}' in issue["message"]
    assert near_misses({"ship": 19, name: 2}) == []


@pytest.mark.parametrize("name", ["shippp", "boat", "sh", "hsip"])
def test_names_further_apart_are_not(name):
    assert near_misses({"ship": 30, name: 1}) == []


def test_types_that_differ_in_a_digit_are_not():
    assert near_misses({"Boeing737": 90, "Boeing747": 1, "A220": 90, "A2200": 1}) == []


def test_the_most_frequent_of_several_is_suggested_and_its_own_never():
    issues = near_misses({"car": 10, "cat": 50, "cas": 1, "CAS": 1})
    suggested = {issue["message"].split("'")[1]: issue["message"] for issue in issues}
    assert set(suggested) == {"CAS", "cas"}
    assert '{"CAS": "cat"}' in suggested["CAS"]
    assert '{"cas": "cat"}' in suggested["cas"]


def test_class_that_is_allowed_by_name_is_right():
    assert near_misses({"ship": 50, "ships": 1}, expected=("ship", "ships")) == []
