"""The files of the datasets: checksums, public sources, and what only a person can fetch.

Where a log-in, a form or a spreadsheet stands between a program and the file, a person has to fetch it. The addresses
of the others are those the publishers give; that they answer, and with these very bytes, shows in the checksum.
"""

from holdfast.datasets.fetch import File
from holdfast.datasets.published_formats import adult, california, compas, member, south_german, statlog, unpacked

UCI = "https://archive.ics.uci.edu/ml/machine-learning-databases"
RAW = "https://raw.githubusercontent.com"
MNIST = "https://storage.googleapis.com/cvdf-datasets/mnist"
FASHION = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com"

_ALL = (
    File(
        "german_credit/german_statlog.csv.gz",
        "dc80646882b6039d6d34854079321bef44717b3ca6cfa96161107e40ee1c4717",
        "590311064513b0e9de8be865f0964c06b21f6a5da02ebb094806825a132f492a",
        (f"{UCI}/statlog/german/german.data",),
        statlog,
    ),
    File(
        "german_credit/south_german.csv.gz",
        "57433e0232eb63768d7ed295224128cd1204a36db01572d4e34f515d4ddd2dfb",
        "102cf41e00a57858798dae47373debf90b99ac869f55355aac2e038213edf049",
        (f"{UCI}/00522/SouthGermanCredit.zip",),
        south_german,
    ),
    File(
        "german_credit/rocoursenet_original.csv.gz",
        "c15f68e19c9e75ed21374df36eaa142f274c928f636fee34dfadbc9d6aece7a2",
        "478f1a3b1f956c53ffb7209cb88600dfb03728632a45a81a5deecb6c95d34ae3",
        (f"{RAW}/BirkhoffG/RoCourseNet/main/assets/data/german_credit/org.csv",),
    ),
    File(
        "german_credit/rocoursenet_corrected.csv.gz",
        "1c93d7cff79793f4d08727ab21c06c423b0d5d49f5c89daf7168cef672d12fd8",
        "6751d65218c38cdcbca74bae6961c854455ba32410dbd38c0526369b35e55223",
        (f"{RAW}/BirkhoffG/RoCourseNet/main/assets/data/german_credit/upt.csv",),
    ),
    File(
        "heloc/heloc.csv.gz",
        "e74c24c2810396313f41f430e849e92d299308008bc128dea20f8add4a958f6b",
        "f66d77f4e4e27c11205ba6258008f5e071f1f09724f4893e9ff2840a4e99f259",
        by_hand="the FICO community (Explainable ML Challenge, heloc_dataset_v1.csv), after agreeing to its terms",
    ),
    File(
        "taiwan_credit/taiwan_credit.csv.gz",
        "27795e7ee11c60e64c511c7f28d5b06970c01393e9e0abd5cfe3df43f198cc83",
        "4edce6da569b2c30788a85fd98a9bafb1a983e8ca1a7aac875dd7ff853cbd0bb",
        by_hand="UCI 350 (default of credit card clients.xls), its first sheet from the second line on written as CSV",
    ),
    File(
        "sba_loan/sba_loan_1994_2009.csv.gz",
        "c02fc7dfcbb7e8c60596f15821d2b1788ad8aee8f2b7bd05711f1367afe55b53",
        "24cb5840a06c5e1fe278872df0e9a2705eb365ac775356d937aee2569037ff11",
        by_hand="GitHub BirkhoffG/RoCourseNet (assets/data/loan/year=*.csv), years joined, dollars for logarithms",
    ),
    File(
        "sba_loan/sba_case_california.csv.gz",
        "48df05c3308997d35f99e3338cf57de17fdc53d4b6f58fb8ced78b50ce6e6712",
        "b765e855c7fd05d302251c1829505df4bc205b79d2d7905741cf6a53a67817ae",
        by_hand="Li, Mickel and Taylor 2018 (SBAcase.11.13.17.csv), without the names of the businesses",
    ),
    File(
        "give_me_some_credit/cs-training.csv.gz",
        "af451a1ef057cba625581c4be556cde51043f605b6334988b86149cd4d6e8288",
        "1bd46da486a5708c58c7b01a034fae2a13b327f6f7b62ea7ba4fe3b5824b24ac",
        by_hand="Kaggle (GiveMeSomeCredit, cs-training.csv), after agreeing to its rules",
    ),
    File(
        "lending_club/lending_club.csv.gz",
        "a8209d4410b2804249c3c39a5d090eb7dea9861abfc6c1737a8c396225d679a8",
        "3dbe4d83e6efc20a42c349480fdf8e710b06cc4273eedf96896d137c9771537c",
        by_hand="the R package modeldata (lending_club) written as CSV",
    ),
    File(
        "student/student-por.csv.gz",
        "db58b350f6dcaa7af5f889ed9af478035079f625c889a21a3d2b285de20ca609",
        "efb83802a25a6b5719edc8df69634c270c15da67dcf5b37f6d6845f0c0306b50",
        (f"{UCI}/00320/student.zip",),
        member("student-por.csv", drop=b'"'),
    ),
    File(
        "student/student-mat.csv.gz",
        "e7a9edc0f63da4a957704f39c6127926ebf1f181d4b1c9b5131e2d6b33f0f995",
        "e47f9ee225e1ee6e69b7564e6dac7123e80b8486677fe111f351964cef5dec80",
        (f"{UCI}/00320/student.zip",),
        member("student-mat.csv"),
    ),
    File(
        "adult/adult.csv.gz",
        "ae0655a69eefdf7e0186431236d13982bc29cb8c1ab2dcc1bd68dae2ecec0d92",
        "d99d5b2c07ff6c7e09b6e0cefe115f6835d5c7b6efebdb9276238f1243c6369b",
        (
            f"{UCI}/adult/adult.data",
            f"{UCI}/adult/adult.test",
        ),
        adult,
    ),
    File(
        "compas/compas-scores-two-years.csv.gz",
        "10aa993752ab662a247fc27c661eeca3b5e5a504c58d9ecb9c8f463be07d9549",
        "30eb20d79ba476ec24979ea00d0e77ef74fb5adc0ee843fd0d00079465a6089d",
        (f"{RAW}/propublica/compas-analysis/master/compas-scores-two-years.csv",),
        compas,
    ),
    File(
        "bail/bail.csv.gz",
        "37a17cf6efffcf7d934ec42be0094de8ffdef9c7e13e4991a54fea3952c9bb7e",
        "f6e645959586408004f156ced34530232793f578d08912f927924aaa11f6d175",
        by_hand="ICPSR 8987, or the copy in GitHub XweiQ/Benchmark-GraphFairness (dataset/bail/bail.csv)",
    ),
    File(
        "law_school/law_data.csv.gz",
        "78adfa24e1b3d98d647e859f2a62e83c7522c9c1abce1dff7991a3744ef12413",
        "de8da6773a399bcefcb8fd45a966727013b90bcc52ba66f2c6bb63ce2f0ce576",
        by_hand="GitHub mkusner/counterfactual-fairness (law_data.csv), without its first column",
    ),
    File(
        "bank_marketing/bank-additional-full.csv.gz",
        "19d160205359e3f748931d09c670c755e4e66be9bf59e2f894f4f274ece9ce00",
        "74adfc578bf77a7ff4bb1ba4a9f8709d9e3c6907342959c2c8416847e0afb4d8",
        (f"{UCI}/00222/bank-additional.zip",),
        member("bank-additional/bank-additional-full.csv"),
    ),
    File(
        "california_housing/california_housing.csv.gz",
        "a7153bfaf0b4037d02a629810e97108d4fcc1a95a323b7e52cc24f00f5fbb29b",
        "0376b30437774d32233bbf31bb7046d567e8ba6b97c011cce32275bd4390c95a",
        (f"{RAW}/ageron/handson-ml2/master/datasets/housing/housing.csv",),
        california,
    ),
    File(
        "ctg/ctg.csv.gz",
        "8aa07eb474406447b908e937a5321d987e69868868cd7c96038c1af963ffb121",
        "64fcb802cdb8bcad54c92098bb4a89aab8124142b2fd75d1f79712cd4ac7702c",
        by_hand="UCI 193 (CTG.xls): the recording from sheet Raw Data beside the columns of sheet Data",
    ),
    File(
        "epileptic_seizure/epileptic_seizure_recognition.csv.gz",
        "db5f2230b0a5ba1f2e2185bd954cf6cb7f4c120a8bd4fa49a663f84c6ce49a71",
        "5ac55c71de5df20d2f47c39300c5b61df18ac5d1c40315e586310b794c32a98b",
        by_hand="Kaggle (Epileptic Seizure Recognition.csv), a copy of UCI 388, which UCI no longer offers",
    ),
    File(
        "warfarin/warfarin_iwpc.csv.gz",
        "49bec9c6764ec207cde243fb38df65665a01d3e87381caf9251e174b206a296e",
        "7e7de3671ff2f222a1ff33afc145e05199c64345a912a1add23d86dd2894253d",
        by_hand="PharmGKB (PS206767-553247439.xls) written as CSV",
    ),
    File(
        "mnist/train-images-idx3-ubyte.gz",
        "71524e2cd1ad2968737f7f2f2ff69cbfc32df8ccddff51593f7cb2d4e0eb5b64",
        "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        (f"{MNIST}/train-images-idx3-ubyte.gz",),
        unpacked,
    ),
    File(
        "mnist/train-labels-idx1-ubyte.gz",
        "fe03b8bd7915f70bf5aa08be480aa413fbd85afcaa58b35d230d335f284fd88e",
        "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        (f"{MNIST}/train-labels-idx1-ubyte.gz",),
        unpacked,
    ),
    File(
        "mnist/t10k-images-idx3-ubyte.gz",
        "5634745efa576a17e7d4cf5cd9d09123c75e6538e5114267c2d156edaf519341",
        "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        (f"{MNIST}/t10k-images-idx3-ubyte.gz",),
        unpacked,
    ),
    File(
        "mnist/t10k-labels-idx1-ubyte.gz",
        "ae18e77e031ccde52407f794d123116439864147d33ac992975f85dd4dc42af6",
        "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
        (f"{MNIST}/t10k-labels-idx1-ubyte.gz",),
        unpacked,
    ),
    File(
        "fashion_mnist/t10k-images-idx3-ubyte.gz",
        "78cb45a589ec14266eab4ac0cb2e9e10a4c076ae2d337fe86383d761bff83f32",
        "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
        (f"{FASHION}/t10k-images-idx3-ubyte.gz",),
        unpacked,
    ),
    File(
        "fashion_mnist/t10k-labels-idx1-ubyte.gz",
        "ae04cd950ab214637dd08f56319057c2ae10cbb660f742681f426479e3d51363",
        "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
        (f"{FASHION}/t10k-labels-idx1-ubyte.gz",),
        unpacked,
    ),
    File(
        "omniglot_letters/images-idx3-ubyte.gz",
        "aec05d709d6dff6e0dde5b777f10eb4cd495ed86984d7d700647cdce0b5d0ea0",
        "392a296c27fb8cd55f1bcaabcc9ecfcc05b2d9eae19a3cdb9a90c0c7741030d7",
        by_hand="GitHub brendenlake/omniglot (python/images_background_small1.zip), scaled to 28 x 28 as in MNIST",
    ),
    File(
        "omniglot_letters/labels.csv.gz",
        "8d97835531c384c31fe7a83028d427335e1e92b0306d562ecedd846d9f2a0b82",
        "75cc8d55fc629c931d604f1b2b4896d500210695bef5dcb80e07f5da5b50aa51",
        by_hand="GitHub brendenlake/omniglot (python/images_background_small1.zip), scaled to 28 x 28 as in MNIST",
    ),
)

FILES = {file.path: file for file in _ALL}
