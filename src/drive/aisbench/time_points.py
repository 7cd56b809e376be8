"""Prints the time points of each line of an AISBench details file as JSON lines.

usage: time_points.py DETAILS DB_FOLDER
"""
import json
import os
import sqlite3
import struct
import sys

details, folder = sys.argv[1:]
connections = {}


def points(row):
    stored = row.get("time_points")
    if isinstance(stored, list):
        return stored
    name, key = os.path.basename(row.get("db_name") or ""), (stored or {}).get("__db_ref__")
    path = os.path.join(folder, name)
    if key is None or not os.path.isfile(path):
        return []
    if name not in connections:
        connections[name] = sqlite3.connect(path)
    found = connections[name].execute("SELECT arr_blob FROM numpy_store WHERE id = ?", (key,)).fetchone()
    if not found or found[0][:8] != b"\x93NUMPY\x01\x00":
        return []
    start = 10 + struct.unpack("<H", found[0][8:10])[0]
    return [p[0] for p in struct.iter_unpack("<d", found[0][start:])]


with open(details, encoding="utf-8") as lines:
    for line in lines:
        try:
            row = json.loads(line)
        except ValueError:
            break
        print(json.dumps({"id": row["id"], "success": row["success"], "time_points": points(row)}))
