-- Every table whose keys are led by `root` becomes 16 hash partitions. `perdure` is the schema's name here.
DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['journal', 'inbox', 'effects', 'blobs', 'cursors'] LOOP
        EXECUTE format('ALTER TABLE perdure.%I RENAME TO %I', name, name || '_whole');
        EXECUTE format('CREATE TABLE perdure.%I (LIKE perdure.%I INCLUDING ALL) PARTITION BY HASH (root)', name, name || '_whole');
        EXECUTE format('DROP TABLE perdure.%I', name || '_whole');
        FOR part IN 0..15 LOOP
            EXECUTE format(
                'CREATE TABLE perdure.%I PARTITION OF perdure.%I FOR VALUES WITH (MODULUS 16, REMAINDER %s)', name || '_' || part, name, part
            );
        END LOOP;
    END LOOP;
END
$$;
